/**
 * Runs a program that `firebrick export web` wrote, on WebGPU, without any other library.
 *
 *     import { load, tensor } from "./firebrick.js";
 *     const program = await load(".");
 *     const { output } = await program.run({ x: tensor("float32", [1, 1, 8, 8], values) });
 *
 * A folder holds `program.json` (buffers, kernels, launches, steps), `kernels/*.wgsl`, `weights.safetensors` and
 * `selftest.safetensors`. Before a program is handed out, it computes the self-test: inputs with the results that Firebrick
 * computed when it was exported. A driver that computes something else is refused: no answer is silently wrong.
 */

/** The plan's format that this file reads. */
const FORMAT = 3;

/** Launches and copies after which what is recorded is submitted, so that the GPU begins while the rest is recorded. */
const MOST_COMMANDS = 2000;

/** Dtypes in memory: the typed array of a tensor's elements. Halves and bfloat16 are their bits. */
const ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array,
  int32: Int32Array, uint64: BigUint64Array, int64: BigInt64Array, float32: Float32Array, float16: Uint16Array,
  bfloat16: Uint16Array,
};

/** Dtypes by their names in safetensors files. */
const STORED = {
  BOOL: "bool", U8: "uint8", I8: "int8", U16: "uint16", I16: "int16", U32: "uint32", I32: "int32", U64: "uint64", I64: "int64",
  F32: "float32", F16: "float16", BF16: "bfloat16",
};

/** An error whose message says what was expected, what was received and what to do. */
export class FirebrickError extends Error {
  constructor(expected, received, remedy) {
    super(`${expected}\nReceived: ${received}.` + (remedy ? `\nRemedy: ${remedy}.` : ""));
    this.name = "FirebrickError";
  }
}

/**
 * @typedef {Object} Tensor
 * @property {string} dtype Name of its dtype, such as "float32".
 * @property {number[]} shape
 * @property {ArrayLike} data Its elements, row by row, in the typed array of its dtype.
 */

/**
 * A tensor, checked.
 * @param {string} dtype Name of a dtype.
 * @param {number[]} shape
 * @param {ArrayLike} data As many elements as the shape has: the typed array of the dtype, or numbers to put into one.
 * @returns {Tensor}
 */
export function tensor(dtype, shape, data) {
  const kind = ARRAYS[dtype];
  if (!kind) throw new FirebrickError(`a dtype is one of ${Object.keys(ARRAYS).join(", ")}`, dtype);
  const values = Array.isArray(data) ? kind.from(data) : data;
  if (!(values instanceof kind)) {
    throw new FirebrickError(`elements of ${dtype} are in a ${kind.name}`, values?.constructor?.name ?? String(values));
  }
  if (values.length !== count(shape)) {
    throw new FirebrickError(`a tensor of shape [${shape}] has ${count(shape)} elements`, `${values.length}`);
  }
  return { dtype, shape: [...shape], data: values };
}

const count = (shape) => shape.reduce((product, n) => product * n, 1);
const text = (t) => `${t.dtype}[${t.shape}]`;
const tuple = (numbers) => `(${numbers.join(", ")}${numbers.length === 1 ? "," : ""})`;
const wholeWords = (bytes) => Math.ceil(bytes / 4) * 4;

/** Which matrices of a stack have no answer, as in Python: the number of the first one, and how many there are. */
function matrices(stack, first, found) {
  const place = [];
  for (let k = stack.length, rest = first; k--; rest = Math.floor(rest / stack[k])) place.unshift(rest % stack[k]);
  const at = stack.length ? `matrix ${tuple(place)} of a stack of shape ${tuple(stack)}` : "the matrix";
  return `${at} is not${found > 1 ? ` (${found} in all)` : ""}`;
}

/**
 * Load a program, compile its kernels and run its self-test.
 * @param {string} folder Address of the exported folder.
 * @param {Object} [options]
 * @param {GPU} [options.gpu] WebGPU; that of the browser by default.
 * @param {(text: string) => void} [options.progress] Called with what is being done, for people.
 * @returns {Promise<Program>}
 * @throws {FirebrickError} There is no WebGPU here, the GPU is too small, a file is missing or damaged, or the driver
 *     computes wrongly.
 */
export async function load(folder, { gpu = globalThis.navigator?.gpu, progress = () => {} } = {}) {
  if (!gpu) {
    const secure = globalThis.isSecureContext !== false;
    throw new FirebrickError(
      "this page computes on the GPU, by WebGPU",
      secure ? "a browser without WebGPU" : "a page that came over an insecure connection, where browsers have no WebGPU",
      secure ? "use a current version of Chrome, Edge, Safari or Firefox, or switch WebGPU on in its settings"
        : "open it by https:, or from this machine by http://localhost",
    );
  }
  progress("Loading the program …");
  const plan = JSON.parse(new TextDecoder().decode(await fetched(folder, "program.json")));
  if (plan.format !== FORMAT) {
    throw new FirebrickError(`a program of format ${FORMAT}`, `format ${plan.format}`, "export it again with this version's page");
  }
  const device = await opened(gpu, plan);
  progress("Loading the weights …");
  const [weights, selftest, sources] = await Promise.all([
    tensorFile(folder, plan.weights),
    tensorFile(folder, plan.selftest),
    Promise.all(plan.kernels.map(async (k) => new TextDecoder().decode(await fetched(folder, k.file, k.sha256)))),
  ]);
  const program = new Program(device, plan);
  try {
    progress("Compiling the kernels …");
    await program._prepare(sources, weights);
    progress("Testing this GPU …");
    await program._test(selftest);
  } catch (e) {
    program.destroy();
    throw e;
  }
  return program;
}

/**
 * The inputs of a program's self-test.
 * @param {string} folder Address of the exported folder.
 * @param {Program} program The program that was loaded from there.
 * @returns {Promise<Object<string, Tensor>>}
 */
export async function selftest(folder, program) {
  const found = await tensorFile(folder, { file: "selftest.safetensors" });
  return Object.fromEntries(program.inputs.map(({ name }) => [name, found.get(`input.${name}`)]));
}

/** The GPU's device, with the limits that the plan needs. */
async function opened(gpu, plan) {
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) {
    throw new FirebrickError(
      "this page computes on the GPU, by WebGPU", "a browser that offers no GPU to pages",
      "update the browser and the GPU's driver, or switch hardware acceleration on in its settings",
    );
  }
  for (const [name, needed] of Object.entries(plan.limits)) {
    if (adapter.limits[name] < needed) {
      throw new FirebrickError(
        `this program needs ${name} of ${needed.toLocaleString("en")}`, `${adapter.limits[name]?.toLocaleString("en")} of this GPU`,
        "use another GPU, or export the program with a smaller batch",
      );
    }
  }
  return adapter.requestDevice({ label: "firebrick" });
}

/** The bytes of a file of the folder; with a hash, they are compared with it. */
async function fetched(folder, file, sha256) {
  const address = `${folder.replace(/\/$/, "")}/${file}`;
  const answer = await fetch(address).catch((e) => {
    throw new FirebrickError(`the file ${address}`, `${e.message}`, "serve the whole exported folder by HTTP");
  });
  if (!answer.ok) {
    throw new FirebrickError(`the file ${address}`, `status ${answer.status}`, "serve the whole exported folder");
  }
  const bytes = new Uint8Array(await answer.arrayBuffer());
  if (sha256 && globalThis.crypto?.subtle) {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const found = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
    if (found !== sha256) {
      throw new FirebrickError(`${file} as it was exported with program.json`, "another or damaged file",
        "upload all files of one export, and empty the cache of the browser");
    }
  }
  return bytes;
}

/** The tensors of a safetensors file, by name. */
async function tensorFile(folder, { file, sha256 }) {
  const bytes = await fetched(folder, file, sha256);
  const wrong = (what) => new FirebrickError(`${file} is a safetensors file`, what, "export the program again");
  if (bytes.length < 8) throw wrong(`${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const header = Number(view.getBigUint64(0, true));
  if (8 + header > bytes.length) throw wrong("a header that is longer than the file");
  const found = new Map();
  for (const [name, facts] of Object.entries(JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + header))))) {
    if (name === "__metadata__") continue;
    const dtype = STORED[facts.dtype], kind = ARRAYS[dtype], [start, end] = facts.data_offsets;
    if (!kind || end > bytes.length - 8 - header || end - start !== count(facts.shape) * kind.BYTES_PER_ELEMENT) {
      throw wrong(`${name} of ${facts.dtype}[${facts.shape}] at ${start} to ${end}`);
    }
    const content = bytes.slice(8 + header + start, 8 + header + end); // a copy, which is aligned
    found.set(name, { dtype, shape: facts.shape, data: new kind(content.buffer) });
  }
  return found;
}

/** Commands for a GPU, which are recorded and submitted together. */
class Commands {
  #device; #pass = null; #count = 0;

  constructor(device) {
    this.#device = device;
    this.encoder = device.createCommandEncoder();
  }

  launch({ pipeline, group, workgroups }) {
    this.#pass ??= this.encoder.beginComputePass();
    this.#pass.setPipeline(pipeline);
    this.#pass.setBindGroup(0, group);
    this.#pass.dispatchWorkgroups(...workgroups);
    this.#counted();
  }

  copy(from, fromOffset, to, toOffset, size) {
    this.#endPass();
    this.encoder.copyBufferToBuffer(from, fromOffset, to, toOffset, size);
    this.#counted();
  }

  /** Submit what is recorded; what is recorded next is submitted by the next call. */
  submit() {
    this.#endPass();
    this.#device.queue.submit([this.encoder.finish()]);
    this.encoder = this.#device.createCommandEncoder();
    this.#count = 0;
  }

  #counted() {
    this.#count += 1;
    if (this.#count >= MOST_COMMANDS) this.submit();
  }

  #endPass() {
    this.#pass?.end();
    this.#pass = null;
  }
}

/** A program on a GPU, ready to run. */
export class Program {
  #device; #plan; #lost = null; #buffers = []; #launches = []; #faults; #readers = []; #words; #queue = Promise.resolve();

  constructor(device, plan) {
    this.#device = device;
    this.#plan = plan;
    device.lost.then((info) => { this.#lost = info.message || info.reason; });
  }

  /** What it is called. @returns {string} */
  get name() { return this.#plan.name; }

  /** Its inputs: name, dtype and shape of each. @returns {{name: string, dtype: string, shape: number[]}[]} */
  get inputs() { return this.#plan.inputs.map(({ name, dtype, shape }) => ({ name, dtype, shape })); }

  /** Its outputs. @returns {{name: string, dtype: string, shape: number[]}[]} */
  get outputs() { return this.#plan.outputs.map(({ name, dtype, shape }) => ({ name, dtype, shape })); }

  /** Create buffers, pipelines and bind groups. */
  async _prepare(sources, weights) {
    const device = this.#device, plan = this.#plan;
    const { STORAGE, COPY_DST, COPY_SRC, UNIFORM, MAP_READ } = GPUBufferUsage;
    await this.#guarded("create the program's buffers", async () => {
      this.#buffers = plan.buffers.map((size) => device.createBuffer({ size, usage: STORAGE | COPY_DST | COPY_SRC }));
      this.#faults = device.createBuffer({ size: 4 * (plan.faults.length + 1), usage: STORAGE | COPY_DST | COPY_SRC });
      const sizes = [
        ...plan.outputs.map((o) => count(o.shape) * ARRAYS[o.dtype].BYTES_PER_ELEMENT), ...plan.checks.map((c) => c.bytes),
        this.#faults.size,
      ];
      this.#words = device.createBuffer({ size: 8, usage: MAP_READ | COPY_DST });
      this.#readers = sizes.map((n) => device.createBuffer({ size: Math.max(wholeWords(n), 4), usage: MAP_READ | COPY_DST }));
    });
    for (const w of plan.weights.tensors) {
      const found = weights.get(w.name);
      if (!found || text(found) !== text(w)) {
        throw new FirebrickError(`${plan.weights.file} has ${w.name} of ${text(w)}`, found ? text(found) : "no such tensor",
          "export the program again");
      }
      this.#write(w.buffer, found.data);
    }
    const pipelines = await this.#guarded("compile the program's kernels", () => Promise.all(plan.kernels.map(async (k, i) => {
      const types = [...k.bindings.map((a) => (a === "read" ? "read-only-storage" : "storage")), "uniform"];
      if (k.checks) types.push("storage");
      const layout = device.createBindGroupLayout({
        entries: types.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } })),
      });
      const module = device.createShaderModule({ code: sources[i], label: k.file });
      const pipeline = await device.createComputePipelineAsync({
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }), compute: { module, entryPoint: "main" },
      });
      return { pipeline, layout };
    })));
    await this.#guarded("bind the program's buffers", async () => {
      this.#launches = plan.launches.map((launch) => {
        const { pipeline, layout } = pipelines[launch.kernel];
        const words = Uint32Array.from(launch.words);
        const uniform = device.createBuffer({ size: words.byteLength, usage: UNIFORM | COPY_DST });
        device.queue.writeBuffer(uniform, 0, words);
        const resources = launch.bindings.map(([buffer, offset, size]) => ({ buffer: this.#buffers[buffer], offset, size }));
        resources.push({ buffer: uniform });
        if (plan.kernels[launch.kernel].checks) resources.push({ buffer: this.#faults });
        const entries = resources.map((resource, binding) => ({ binding, resource }));
        return { pipeline, group: device.createBindGroup({ layout, entries }), workgroups: launch.workgroups };
      });
    });
  }

  /** Compute the self-test, and compare. */
  async _test(expected) {
    const { tolerances } = this.#plan.selftest;
    const part = (prefix, facts) => Object.fromEntries(facts.map(({ name }) => [name, expected.get(`${prefix}.${name}`)]));
    const found = await this.run(part("input", this.#plan.inputs));
    for (const { name, dtype } of this.#plan.outputs) {
      const want = expected.get(`output.${name}`)?.data, got = found[name].data;
      const at = want ? firstDifference(dtype, got, want, tolerances[name]) : 0;
      if (at >= 0) {
        throw new FirebrickError(
          `this GPU computes what Firebrick computed when the program was exported`,
          `${got[at]} in place of ${want?.[at]}, as element ${at} of ${name}`,
          "update the GPU's driver or the browser, or use another GPU; results would be wrong on this one",
        );
      }
    }
  }

  /**
   * Run the program.
   * @param {Object<string, Tensor>} inputs A tensor for each input, by name.
   * @returns {Promise<Object<string, Tensor>>} The outputs, by name.
   * @throws {FirebrickError} An input is missing, unknown, or of another dtype or shape; an index in the data is out of
   *     range; or the device was lost.
   */
  async run(inputs) {
    const given = this.#checked(inputs);
    const turn = this.#queue.then(() => this.#run(given)); // calls share buffers, so they take turns
    this.#queue = turn.catch(() => {});
    return turn;
  }

  /** Free the memory of the GPU. The program cannot run afterwards. */
  destroy() { this.#device.destroy(); }

  #checked(inputs) {
    const names = this.#plan.inputs.map((i) => i.name);
    for (const name of Object.keys(inputs)) {
      if (!names.includes(name)) {
        throw new FirebrickError(`the inputs of ${this.name} are ${names.join(", ")}`, name, "leave it out");
      }
    }
    return this.#plan.inputs.map((want) => {
      const got = inputs[want.name];
      if (!got) throw new FirebrickError(`${this.name} takes ${want.name} of ${text(want)}`, "nothing", "pass it");
      const { dtype, shape, data } = tensor(got.dtype, got.shape ?? [], got.data);
      if (text({ dtype, shape }) !== text(want)) {
        throw new FirebrickError(
          `${this.name} takes ${want.name} of ${text(want)}`, text({ dtype, shape }),
          "bring it to this shape, or export the program for the other one",
        );
      }
      return data.slice(); // the caller may change it before its turn comes
    });
  }

  async #run(given) {
    const device = this.#device, plan = this.#plan;
    await this.#guarded(`run ${plan.name}`, async () => {
      plan.inputs.forEach((input, i) => this.#write(input.buffer, given[i]));
      const commands = new Commands(device);
      commands.encoder.clearBuffer(this.#faults);
      await this.#steps(commands, plan.steps, 0);
      [...[...plan.outputs, ...plan.checks].map((o) => this.#buffers[o.buffer]), this.#faults].forEach((buffer, k) => {
        commands.copy(buffer, 0, this.#readers[k], 0, Math.min(this.#readers[k].size, buffer.size));
      });
      commands.submit();
    });
    const contents = await Promise.all(this.#readers.map((reader) => this.#read(reader)));
    plan.checks.forEach(({ expected, remedy, bytes }, k) => {
      const flags = new Uint8Array(contents[plan.outputs.length + k], 0, bytes);
      if (flags.includes(0)) throw new FirebrickError(expected, "a value that does not", remedy);
    });
    const words = new Uint32Array(contents.pop());
    if (words[0] !== 0) {
      const site = 0xffffffff - words[0], payload = (k) => 0xffffffff - words[1 + k] - 2 ** 31, index = payload(site);
      const { op, size, want, remedy, stack } = plan.faults[site];
      if (want) throw new FirebrickError(`${op}: every matrix must be ${want}`, matrices(stack, index, -payload(site + 1)), remedy);
      throw new FirebrickError(`${op}: indices must lie in [${-size}, ${size})`, `${index}`, "check the indices (labels, tokens)");
    }
    return Object.fromEntries(plan.outputs.map(({ name, dtype, shape }, k) => {
      const kind = ARRAYS[dtype];
      return [name, { dtype, shape: [...shape], data: new kind(contents[k], 0, count(shape)) }];
    }));
  }

  /**
   * Record steps. `round` is that of the loop whose steps they are.
   *
   * A condition is read from the GPU, which waits for all that was recorded before.
   */
  async #steps(commands, steps, round) {
    for (const step of steps) {
      if (step.launches) {
        for (let k = step.launches[0]; k < step.launches[1]; k++) commands.launch(this.#launches[k]);
      } else if (step.copy) {
        const [from, to, size] = step.copy, [fromStride, toStride] = step.strides;
        commands.copy(this.#buffers[from], fromStride * round, this.#buffers[to], toStride * round, size);
      } else if (step.times !== undefined) {
        for (let k = 0; k < step.times; k++) {
          await this.#steps(commands, step.steps, step.reverse ? step.times - 1 - k : k);
        }
      } else if (step.while !== undefined) {
        while (await this.#holds(commands, step.while)) await this.#steps(commands, step.steps, 0);
      } else {
        await this.#steps(commands, (await this.#holds(commands, step.if)) ? step.then : step.else, 0);
      }
    }
  }

  /** Whether a condition holds. None does after an index out of range, so that loops end and the error is reported. */
  async #holds(commands, buffer) {
    commands.copy(this.#buffers[buffer], 0, this.#words, 0, 4);
    commands.copy(this.#faults, 0, this.#words, 4, 4);
    commands.submit();
    const content = await this.#read(this.#words);
    return new Uint8Array(content)[0] !== 0 && new Uint32Array(content)[1] === 0;
  }

  #write(buffer, data) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const whole = new Uint8Array(wholeWords(bytes.length));
    whole.set(bytes);
    this.#device.queue.writeBuffer(this.#buffers[buffer], 0, whole);
  }

  async #read(reader) {
    try {
      await reader.mapAsync(GPUMapMode.READ);
    } catch (e) {
      throw this.#lostError() ?? new FirebrickError("results can be read from the GPU", e.message, "load the page again");
    }
    const content = reader.getMappedRange().slice(0);
    reader.unmap();
    return content;
  }

  /** Do something on the device; its errors, which WebGPU reports later, are thrown. */
  async #guarded(what, action) {
    const device = this.#device;
    if (this.#lost !== null) throw this.#lostError();
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    device.pushErrorScope("internal");
    let found, thrown = null;
    try { found = await action(); } catch (e) { thrown = e; }
    const errors = [];
    for (let i = 0; i < 3; i++) errors.push(await device.popErrorScope().catch(() => null));
    const [internal, invalid, memory] = errors;
    if (this.#lost !== null) throw this.#lostError();
    if (memory) {
      const total = this.#plan.buffers.reduce((sum, n) => sum + n, 0).toLocaleString("en");
      throw new FirebrickError(`${total} bytes of the GPU's memory, to ${what}`, memory.message, "close other pages that use the GPU");
    }
    if (thrown instanceof FirebrickError) throw thrown;
    const error = invalid ?? internal ?? thrown;
    if (error) throw new FirebrickError(`the browser can ${what}`, error.message, "report this with the program");
    return found;
  }

  #lostError() {
    if (this.#lost === null) return null;
    return new FirebrickError("the GPU stays there while the page uses it", `the device is lost: ${this.#lost}`, "load the page again");
  }
}

/** The first position where arrays differ; floats by more than the tolerance, relative to the largest number. -1 if there is none. */
function firstDifference(dtype, got, want, tolerance) {
  if (got.length !== want.length) return 0;
  if (!dtype.includes("float")) return want.findIndex((x, i) => x !== got[i]);
  const real = numbers(dtype), sizes = Array.from(want, (x) => Math.abs(real(x))).filter(Number.isFinite);
  const most = tolerance * sizes.reduce((a, b) => Math.max(a, b), 0);
  return want.findIndex((x, i) => {
    const a = real(got[i]), b = real(x);
    return !(a === b || (Number.isNaN(a) && Number.isNaN(b)) || Math.abs(a - b) <= most);
  });
}

/** How an element of a float dtype is read as a number. */
function numbers(dtype) {
  if (dtype === "bfloat16") return (bits) => new Float32Array(Uint32Array.of(bits << 16).buffer)[0];
  if (dtype === "float16") {
    return (bits) => {
      const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
      if (exponent === 31) return fraction ? NaN : sign * Infinity;
      return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
    };
  }
  return (x) => x;
}
