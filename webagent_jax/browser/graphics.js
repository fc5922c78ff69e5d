// Descriptions of graphics: colors, shapes of drawings, areas of image maps.
"use strict";
const HUES = [
  [15, "red"],
  [42, "orange"],
  [70, "yellow"],
  [165, "green"],
  [195, "cyan"],
  [255, "blue"],
  [290, "purple"],
  [325, "magenta"],
  [345, "pink"],
  [361, "red"],
];

/** Returns the everyday word for a computed CSS color; "" for none. */
function colorWord(css) {
  const [r, g, b, alpha = 1] = (css.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  if (!css.startsWith("rgb") || alpha === 0) return "";
  // The hue of the HSV model in degrees; low saturation gives black, white or gray.
  const high = Math.max(r, g, b);
  const low = Math.min(r, g, b);
  if (high - low < 26) return high < 64 ? "black" : high > 235 ? "white" : "gray";
  const spread = high - low;
  const sector =
    high === r
      ? ((g - b) / spread + 6) % 6
      : high === g
        ? (b - r) / spread + 2
        : (r - g) / spread + 4;
  const hue = sector * 60;
  // Dark orange is brown, dark magenta purple, and light red pink.
  if (hue >= 15 && hue < 42 && high < 180) return "brown";
  if (hue >= 290 && hue < 325 && high < 180) return "purple";
  if ((hue < 15 || hue >= 325) && low > 150) return "pink";
  return HUES.find(([end]) => hue < end)[1];
}

const FIGURES = new Set(["circle", "ellipse", "rect", "polygon"]);
const SHAPES = new Set([...FIGURES, "polyline", "line", "path"]);

/** Returns the name of a drawn shape, such as "circle red". */
function shapeName(element, style) {
  const tag = element.tagName.toLowerCase();
  const color = colorWord(style.fill) || colorWord(style.stroke);
  const names = { rect: "rectangle", polyline: "line", path: "shape" };
  if (tag === "polygon")
    names.polygon =
      { 3: "triangle", 4: "quadrilateral" }[element.points.numberOfItems] ?? "polygon";
  return squeeze(`${names[tag] ?? tag} ${color}`);
}

/** Returns the color of an element with another name; black, white and gray are omitted. */
const accent = (css) => colorWord(css).replace(/black|white|gray/, "");

/** Adds "large" or "small" to the names of figures in drawings with both sizes. */
function sizeFigures(entries) {
  const drawings = new Map();
  for (const entry of entries) {
    const tag = entry.element?.tagName;
    if (!FIGURES.has(tag) && tag !== "text") continue;
    const box = entry.element.getBoundingClientRect();
    const extent =
      tag === "text"
        ? parseFloat(getComputedStyle(entry.element).fontSize)
        : Math.max(box.width, box.height);
    const drawing = entry.element.ownerSVGElement;
    drawings.set(drawing, [...(drawings.get(drawing) ?? []), { entry, extent }]);
  }
  for (const figures of drawings.values()) {
    const extents = figures.map(({ extent }) => extent);
    const [small, large] = [Math.min(...extents), Math.max(...extents)];
    // Sizes that are nearly equal have no word. The limit between both is the geometric mean.
    if (large < 1.6 * small) continue;
    for (const { entry, extent } of figures)
      entry.name += extent > Math.sqrt(small * large) ? " large" : " small";
  }
}

/** Returns the image that an area of an image map belongs to. */
function pictureOf(area) {
  const map = area.closest("map");
  const pictures = [...area.ownerDocument.querySelectorAll("img[usemap]")];
  return map && pictures.find((picture) => picture.useMap === `#${map.name}`);
}

/** Returns the box of an area in its frame's viewport; coords are x, y pairs, or x, y, r. */
function areaRect(area) {
  const picture = pictureOf(area).getBoundingClientRect();
  const numbers = area.coords.split(",").map(Number);
  if (area.shape === "circle") {
    const [x, y, r] = numbers;
    return new DOMRect(picture.x + x - r, picture.y + y - r, 2 * r, 2 * r);
  }
  if (numbers.length < 4) return picture; // the default area
  const xs = numbers.filter((_, i) => i % 2 === 0);
  const ys = numbers.filter((_, i) => i % 2 === 1);
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [width, height] = [Math.max(...xs) - left, Math.max(...ys) - top];
  return new DOMRect(picture.x + left, picture.y + top, width, height);
}
