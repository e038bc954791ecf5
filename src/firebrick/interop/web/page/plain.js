/** The page of a program without one of its own: its inputs and outputs, and a run on the inputs of its self-test. */
import { load, selftest } from "./firebrick.js";

const at = (id) => document.getElementById(id);
const rows = (tensors) => tensors.map((t) => `${t.name}: ${t.dtype}[${t.shape}]`).join("\n");

try {
  const program = await load(".", { progress: (text) => { at("state").textContent = text; } });
  at("state").textContent = "Ready: this GPU computes the results of the self-test.";
  at("inputs").textContent = rows(program.inputs);
  at("outputs").textContent = rows(program.outputs);
  at("run").disabled = false;
  at("run").addEventListener("click", async () => {
    at("run").disabled = true;
    try {
      const given = await selftest(".", program);
      const start = performance.now();
      const results = await program.run(given);
      const took = (performance.now() - start).toFixed(1);
      const lines = Object.entries(results).map(([name, t]) => {
        const first = Array.from(t.data.slice(0, 10), String).join(", ");
        return `${name} = ${first}${t.data.length > 10 ? ", …" : ""}`;
      });
      at("results").textContent = [...lines, "", `${took} ms`].join("\n");
      at("results").hidden = false;
    } catch (e) {
      at("problem").textContent = e.message;
    }
    at("run").disabled = false;
  });
} catch (e) {
  at("state").textContent = "";
  at("problem").textContent = e.message;
}
