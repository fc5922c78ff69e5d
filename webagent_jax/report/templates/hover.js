// Values of a curve under the pointer.

const SVG = "http://www.w3.org/2000/svg";

function svgElement(tag, props) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  return element;
}

const curveText = (value, rate) => (rate ? `${value.toFixed(1)} %` : Number(value.toPrecision(3)).toLocaleString("en-US"));

// The step that is closest to a coordinate of the plot.
function closestStep({ x: [offset, slope], lines }, x) {
  const steps = lines.flatMap((line) => line.steps);
  return steps.reduce((a, b) => (Math.abs(offset + slope * b - x) < Math.abs(offset + slope * a - x) ? b : a));
}

// The lines that have a value at the step.
function pointsAt({ lines, rate }, step) {
  return lines.map((line) => ({ line, i: line.steps.indexOf(step) }))
    .filter(({ line, i }) => i >= 0 && line.mean[i] !== null)
    .map(({ line, i }) => ({ ...line, mean: line.mean[i], value: line.values[i] ?? null,
      text: curveText(line.mean[i], rate) }));
}

function showValues(svg, event) {
  hideValues();
  const data = JSON.parse(svg.dataset.curve);
  const box = svg.getBoundingClientRect();
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const step = closestStep(data, ((event.clientX - box.left) / box.width) * width);
  const points = pointsAt(data, step);
  const x = data.x[0] + data.x[1] * step;
  const marks = svgElement("g", { class: "hover" });
  marks.append(svgElement("path", { d: `M${x} 0V${height}`, class: "crosshair" }));
  for (const { mean, series } of points) {
    marks.append(svgElement("circle", { cx: x, cy: data.y[0] + data.y[1] * mean, r: 3.5, fill: `var(--series-${series})` }));
  }
  svg.append(marks);
  const line = ({ name, text, value }) => h("span", {},
    `${name} mean `, h("b", {}, text), value !== null && `, value ${curveText(value, data.rate)}`);
  const tip = h("p", { class: "tip hover" }, h("span", {}, `update ${number(step)}`), points.map(line));
  svg.parentElement.append(tip);
  // The tip is on the side of the pointer that has more space.
  const share = x / width;
  const side = share < 0.5 ? "left" : "right";
  const frame = svg.parentElement.getBoundingClientRect();
  const distance = box.left - frame.left + (share < 0.5 ? share : 1 - share) * box.width + 10;
  setStyles(tip, { [side]: `${distance}px`, top: `${box.top - frame.top}px` });
}

function hideValues() {
  document.querySelectorAll(".hover").forEach((element) => element.remove());
}

function followPointer(event) {
  const svg = event.target.closest?.("svg[data-curve]");
  if (svg) showValues(svg, event);
  else hideValues();
}

document.addEventListener("pointermove", followPointer);
document.addEventListener("pointerdown", followPointer);
