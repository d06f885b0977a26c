// SPDX-License-Identifier: Apache-2.0
// The hourglass: how much of a session's time is left. The areas of sand above and below are the true shares.

const SVG = "http://www.w3.org/2000/svg";
const NECK = 16, HEIGHT = 11.4, HALF = 7.6; // of one bulb: a triangle with its tip in the neck

function part(name: string, attributes: Record<string, string>): SVGElement {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

const point = (x: number, y: number): string => `${x.toFixed(2)},${y.toFixed(2)}`;

/** Sand above: a triangle on its tip, with the share `left` of the bulb's area. */
function above(left: number): string {
  const height = HEIGHT * Math.sqrt(left), half = HALF * Math.sqrt(left);
  return left <= 0 ? "" : `M${point(12, NECK)}L${point(12 + half, NECK - height)}L${point(12 - half, NECK - height)}Z`;
}

/** Sand below: what is missing above, from the bottom up. */
function below(left: number): string {
  const rest = Math.sqrt(left), top = NECK + HEIGHT * rest, half = HALF * rest;
  return left >= 1 ? "" : `M${point(12 - HALF, NECK + HEIGHT)}L${point(12 + HALF, NECK + HEIGHT)}L${point(12 + half, top)}L${point(12 - half, top)}Z`;
}

export class Hourglass {
  readonly element: SVGSVGElement;
  private readonly upper = part("path", { class: "sand" });
  private readonly lower = part("path", { class: "sand" });
  private readonly stream = part("path", { class: "stream", d: `M12,${NECK - 1}V${NECK + HEIGHT}` });
  private shown = -1;
  private mood = "";

  constructor(size: number) {
    this.element = part("svg", { viewBox: "0 0 24 32", width: String(size * 0.75), height: String(size), class: "hourglass", "aria-hidden": "true" }) as SVGSVGElement;
    const tip = 0.9; // half the width of the neck
    this.element.append(
      part("path", { class: "glass", d: `M4,4L${12 - tip},${NECK}L4,28H20L${12 + tip},${NECK}L20,4Z` }), this.upper, this.lower, this.stream,
      part("path", { class: "frame", d: "M3,3.2H21M3,28.8H21" }));
  }

  /** `left` from 1 to 0; null: no clock runs. */
  set(left: number | null, seconds: number | null): void {
    const share = left === null ? 1 : Math.min(1, Math.max(0, left));
    const mood = left === null ? "still" : share <= 0 ? "over" : share < 0.1 || (seconds ?? 1e9) < 60 ? "late" : share < 0.25 ? "soon" : "fine";
    if (Math.abs(share - this.shown) > 0.002) {
      this.shown = share;
      this.upper.setAttribute("d", above(share));
      this.lower.setAttribute("d", below(share));
    }
    if (mood !== this.mood) {
      this.mood = mood;
      this.element.dataset.mood = mood;
    }
  }
}
