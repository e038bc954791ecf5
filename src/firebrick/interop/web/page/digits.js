/** The page that classifies drawn digits: a board to draw on, an answer, and examples for those who cannot draw. */
import { load, tensor } from "./firebrick.js";

const PEN = 0.105; // width of the pen, as a share of the board
const INK = 40; // brightness from which a pixel of the board counts as drawn, of 255

const at = (id) => document.getElementById(id);
const board = at("board"), pen = board.getContext("2d", { willReadFrequently: true });
let program, facts, last = null, drawn = false, turn = 0;

/**
 * What the network sees of a drawing: the drawn part, scaled as digits of the data set are, by averages over areas.
 * @param {Uint8ClampedArray} ink Brightness of each pixel of the board, 0 to 255.
 * @param {number} side Pixels of the board along an axis.
 * @param {number} size Pixels of the picture along an axis.
 * @returns {?Float64Array} Brightness of the picture's pixels, 0 to 1; null if nothing is drawn.
 */
export function picture(ink, side, size) {
  let left = side, right = -1, top = side, bottom = -1;
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      if (ink[y * side + x] < INK) continue;
      left = Math.min(left, x); right = Math.max(right, x);
      top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
  }
  if (right < 0) return null;
  const extent = Math.max(right - left, bottom - top, PEN * side) + 1;
  const cell = extent / (size <= 8 ? size : (size * 20) / 28); // small digits fill the picture, those of MNIST 20 pixels of 28
  let x0 = (left + right + 1 - size * cell) / 2, y0 = (top + bottom + 1 - size * cell) / 2;
  if (size > 8) { // by the centre of mass, as MNIST's are
    let mass = 0, mx = 0, my = 0;
    for (let i = 0; i < ink.length; i++) {
      mass += ink[i]; mx += ink[i] * ((i % side) + 0.5); my += ink[i] * (Math.floor(i / side) + 0.5);
    }
    x0 = mx / mass - (size * cell) / 2;
    y0 = my / mass - (size * cell) / 2;
  }
  const found = new Float64Array(size * size), steps = Math.max(4, Math.ceil(cell));
  for (let i = 0; i < size * size; i++) {
    let sum = 0;
    for (let k = 0; k < steps * steps; k++) {
      const x = Math.floor(x0 + ((i % size) + ((k % steps) + 0.5) / steps) * cell);
      const y = Math.floor(y0 + (Math.floor(i / size) + (Math.floor(k / steps) + 0.5) / steps) * cell);
      if (x >= 0 && x < side && y >= 0 && y < side) sum += ink[y * side + x];
    }
    found[i] = sum / (steps * steps * 255);
  }
  return found;
}

/** The probabilities of the classes for whole numbers from 0 to pixel_max. */
async function classify(pixels) {
  const [input] = program.inputs, [output] = program.outputs;
  const values = Float32Array.from(pixels, (p) => (p / facts.pixel_max - facts.mean) / facts.std);
  const results = await program.run({ [input.name]: tensor("float32", input.shape, values) });
  const logits = Array.from(results[output.name].data), most = Math.max(...logits);
  const powers = logits.map((x) => Math.exp(x - most)), total = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / total);
}

/** Show what the network says of pixels. Only the latest call does. */
async function answer(pixels) {
  const mine = ++turn;
  try {
    const shares = await classify(pixels);
    if (mine !== turn) return;
    const best = shares.indexOf(Math.max(...shares));
    const digit = document.createElement("strong");
    digit.textContent = facts.classes[best];
    at("answer").replaceChildren(digit, `with a probability of ${(100 * shares[best]).toFixed(1)} %`);
    show(shares);
  } catch (e) {
    at("problem").textContent = e.message;
  }
}

function show(shares) {
  [...at("bars").rows].forEach((row, k) => {
    row.querySelector("meter").value = shares ? shares[k] : 0;
    row.lastElementChild.textContent = shares ? `${(100 * shares[k]).toFixed(1)} %` : "";
  });
}

function look() {
  const side = board.width, content = pen.getImageData(0, 0, side, side).data;
  const ink = Uint8ClampedArray.from({ length: side * side }, (_, i) => content[4 * i + 3]);
  const seen = picture(ink, side, facts.image_size);
  if (seen) answer(Array.from(seen, (p) => Math.round(p * facts.pixel_max)));
}

function clear() {
  pen.clearRect(0, 0, board.width, board.height);
  drawn = false;
  turn++;
  at("answer").textContent = "Draw a digit.";
  show(null);
}

function draw(event) {
  const box = board.getBoundingClientRect(), scale = board.width / box.width;
  const here = { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  pen.strokeStyle = "#fff";
  pen.lineWidth = PEN * board.width;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo((last ?? here).x, (last ?? here).y);
  pen.lineTo(here.x, here.y);
  pen.stroke();
  last = here;
  drawn = true;
}

function listen() {
  board.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    if (!drawn) clear();
    board.setPointerCapture(event.pointerId);
    last = null;
    draw(event);
  });
  board.addEventListener("pointermove", (event) => {
    if (last && event.isPrimary) event.getCoalescedEvents?.().forEach(draw) ?? draw(event);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    board.addEventListener(kind, () => {
      if (last) look();
      last = null;
    });
  }
  at("clear").addEventListener("click", clear);
  at("clear").disabled = false;
}

/** A button for each example; a chosen one is shown on the board. */
function examples() {
  const size = facts.image_size;
  for (const { label, pixels } of facts.examples ?? []) {
    const button = document.createElement("button"), small = document.createElement("canvas");
    button.type = "button";
    button.setAttribute("aria-label", `Example of ${label}`);
    small.width = small.height = size;
    const to = small.getContext("2d"), image = to.createImageData(size, size);
    pixels.forEach((p, i) => image.data.set([255, 255, 255, (255 * p) / facts.pixel_max], 4 * i));
    to.putImageData(image, 0, 0);
    button.append(small);
    button.addEventListener("click", () => {
      clear();
      pen.imageSmoothingEnabled = false;
      pen.drawImage(small, 0, 0, board.width, board.height);
      answer(pixels);
    });
    at("examples").append(button);
  }
  at("given").hidden = !facts.examples?.length;
}

function bars() {
  for (const name of facts.classes) {
    const row = at("bars").insertRow(), head = document.createElement("th"), meter = document.createElement("meter");
    head.scope = "row";
    head.textContent = name;
    meter.setAttribute("aria-label", `Probability of ${name}`);
    row.append(head);
    row.insertCell().append(meter);
    row.insertCell();
  }
}

try {
  facts = await (await fetch("page.json")).json();
  bars();
  program = await load(".", { progress: (text) => { at("answer").textContent = text; } });
  examples();
  listen();
  clear();
  document.body.dataset.ready = "true";
} catch (e) {
  at("answer").textContent = "";
  at("problem").textContent = e.message;
}
