// Executes commands of WebGPU with Dawn. A message on the standard input is, in JSON, a device and a list of commands, and then their
// data; a command is a name and arguments, where numbers name objects. The last command of a message may be a request, which is
// answered on the standard output: the errors since the last answer, a value, and data.
import { readSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const { create, globals } = await import(pathToFileURL(`${folder}/index.js`));
Object.assign(globalThis, globals);
const gpu = create([`backend=${process.argv[3]}`]);

const objects = new Map();
const errors = [];
const SCOPES = ["validation", "out-of-memory", "internal"];
const COLLECT = 1 << 26; // bytes of buffers that nothing names any more, after which the collector is called
let garbage = 0;

const get = (id) => objects.get(id);
const limitsOf = ({ limits }) => Object.fromEntries(Object.keys(Object.getPrototypeOf(limits)).map((name) => [name, limits[name]]));
const at = (data, [begin, size]) => data.subarray(begin, begin + size);
const entriesOf = (list) => list.map(([binding, buffer, offset, size]) => ({ binding, resource: { buffer: get(buffer), offset, size } }));

const commands = {
    buffer: (d, id, size, usage) => objects.set(id, d.createBuffer({ size, usage })),
    write: (d, buffer, offset, part, data) => d.queue.writeBuffer(get(buffer), offset, at(data, part)),
    layout: (d, id, entries) => objects.set(id, d.createBindGroupLayout({ entries })),
    layouts: (d, id, list) => objects.set(id, d.createPipelineLayout({ bindGroupLayouts: list.map(get) })),
    group: (d, id, layout, entries) => objects.set(id, d.createBindGroup({ layout: get(layout), entries: entriesOf(entries) })),
    encoder: (d, id) => objects.set(id, d.createCommandEncoder()),
    pass: (d, id, encoder) => objects.set(id, get(encoder).beginComputePass()),
    set_pipeline: (d, pass, pipeline) => get(pass).setPipeline(get(pipeline)),
    set_group: (d, pass, number, group) => get(pass).setBindGroup(number, get(group)),
    dispatch: (d, pass, x, y, z) => get(pass).dispatchWorkgroups(x, y, z),
    end: (d, pass) => get(pass).end(),
    copy: (d, encoder, from, begin, into, offset, size) =>
        get(encoder).copyBufferToBuffer(get(from), begin, get(into), offset, size),
    clear: (d, encoder, buffer, offset, size) => get(encoder).clearBuffer(get(buffer), offset, size),
    finish: (d, id, encoder) => objects.set(id, get(encoder).finish()),
    submit: (d, list) => d.queue.submit(list.map(get)),
    destroy: (d) => d.destroy(),
    drop: (d, id) => {
        garbage += get(id)?.size ?? 0;
        objects.delete(id);
    },
};

const requests = {
    async adapters(d, id) {
        const adapter = await gpu.requestAdapter();
        if (!adapter) return null;
        objects.set(id, adapter);
        const info = {};
        for (const name of ["vendor", "architecture", "device", "description"]) info[name] = adapter.info[name];
        return { info, limits: limitsOf(adapter), features: [...adapter.features], processor: adapter.info.isFallbackAdapter };
    },
    async device(d, id, adapter, requiredFeatures, requiredLimits) {
        // an adapter gives one device: later ones are of new adapters
        const from = get(adapter).used ? await gpu.requestAdapter() : get(adapter);
        get(adapter).used = true;
        const device = await from.requestDevice({ requiredFeatures, requiredLimits });
        device.lost.then((why) => (device.gone = `the device is lost: ${why.message}`));
        objects.set(id, device);
        return limitsOf(device);
    },
    async module(d, id, code) {
        const module = d.createShaderModule({ code });
        objects.set(id, module);
        const { messages } = await module.getCompilationInfo();
        return messages.filter((m) => m.type === "error").map((m) => `${m.lineNum}:${m.linePos}: ${m.message}`);
    },
    async pipeline(d, id, layout, module, entryPoint) {
        const compute = { module: get(module), entryPoint };
        objects.set(id, d.createComputePipeline({ layout: get(layout), compute }));
    },
    async buffer_now(d, id, size, usage) {
        commands.buffer(d, id, size, usage);
    },
    async map(d, buffer, size) {
        const mapped = get(buffer);
        await mapped.mapAsync(GPUMapMode.READ, 0, size);
        const found = new Uint8Array(mapped.getMappedRange(0, size).slice(0));
        mapped.unmap();
        return found;
    },
    async read(d, buffer, offset, size) {
        const device = d;
        const staging = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
        try {
            const encoder = device.createCommandEncoder();
            encoder.copyBufferToBuffer(get(buffer), offset, staging, 0, size);
            device.queue.submit([encoder.finish()]);
            await staging.mapAsync(GPUMapMode.READ);
            return new Uint8Array(staging.getMappedRange().slice(0));
        } finally {
            staging.destroy();
        }
    },
};

function received(size) {
    const found = Buffer.allocUnsafe(size);
    for (let n = 0; n < size; ) {
        const more = readSync(0, found, n, size - n, null);
        if (more === 0) process.exit(0); // its parent has ended
        n += more;
    }
    return found;
}

function send(...parts) {
    for (const part of parts) for (let n = 0; n < part.length; ) n += writeSync(1, part, n);
}

async function scoped(device, work) {
    if (device?.gone) errors.push(["lost", device.gone]);
    for (const scope of device ? SCOPES : []) device.pushErrorScope(scope);
    let value = null;
    try {
        value = await work();
    } catch (e) {
        errors.push(["internal", String(e?.message ?? e)]);
    }
    for (const scope of device ? [...SCOPES].reverse() : []) {
        const error = await device.popErrorScope().catch((e) => e);
        if (error) errors.push([scope, error.message]);
    }
    if (device?.gone) errors.push(["lost", device.gone]);
    return value;
}

// a shader that does not return would keep this process when its parent has ended
const parent = process.ppid;
setInterval(() => process.ppid === parent || process.kill(process.pid, "SIGKILL"), 1000).unref();

for (;;) {
    const head = received(8);
    const [id, list] = JSON.parse(received(head.readUInt32LE(0)).toString());
    const data = received(head.readUInt32LE(4));
    const device = get(id);
    const value = await scoped(device, async () => {
        let found = null;
        for (const [name, ...args] of list) {
            if (name in requests) found = await requests[name](device, ...args);
            else commands[name](device, ...args, data);
        }
        return found;
    });
    if (garbage > COLLECT) {
        garbage = 0;
        globalThis.gc();
        await new Promise(setImmediate);
    }
    if (list[list.length - 1][0] in requests) {
        const bytes = value instanceof Uint8Array;
        const text = Buffer.from(JSON.stringify([errors.splice(0), bytes ? null : value]));
        const sizes = Buffer.alloc(8);
        sizes.writeUInt32LE(text.length, 0);
        sizes.writeUInt32LE(bytes ? value.length : 0, 4);
        send(sizes, text, bytes ? value : Buffer.alloc(0));
    }
}
