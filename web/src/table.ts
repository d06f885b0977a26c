// SPDX-License-Identifier: Apache-2.0
// A list of any length: only the rows that can be seen are in the document, and they are used again.

import { h } from "./dom";

export interface RowView<T> { element: HTMLElement; update(item: T, index: number): void }

export class VirtualList<T> {
  readonly element: HTMLElement;
  selected = -1;
  private readonly space = h("div", { class: "space", role: "presentation" });
  private readonly views: { view: RowView<T>; item: T | null; index: number }[] = [];
  private items: T[] = [];
  private first = 0;
  private count = 0;
  private scheduled = false;

  constructor(label: string, private readonly rowHeight: number, private readonly makeView: () => RowView<T>, header: HTMLElement,
              private readonly onOpen: (item: T) => void) {
    this.element = h("div", { class: "grid", role: "grid", tabindex: "0", "aria-label": label, "aria-rowcount": "0" }, header,
      h("div", { role: "rowgroup", class: "body" }, this.space));
    this.element.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.schedule()).observe(this.element);
  }

  setItems(items: T[]): void {
    this.items = items;
    this.space.style.height = `${items.length * this.rowHeight}px`;
    this.element.style.setProperty("--content", `${items.length * this.rowHeight + 34}px`);
    this.element.setAttribute("aria-rowcount", String(items.length + 1));
    if (this.selected >= items.length) this.selected = items.length - 1;
    this.schedule();
  }

  get selection(): T | null { return this.items[this.selected] ?? null; }
  get length(): number { return this.items.length; }
  visible(): T[] { return this.items.slice(this.first, this.first + this.count); }
  indexOf(fits: (item: T) => boolean): number { return this.items.findIndex(fits); }

  select(index: number): void {
    this.selected = Math.max(0, Math.min(this.items.length - 1, index));
    const top = this.selected * this.rowHeight, head = this.element.firstElementChild!.clientHeight;
    const room = this.element.clientHeight - head;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > this.element.scrollTop + room) this.element.scrollTop = top + this.rowHeight - room;
    this.schedule();
  }

  /** Shows what has changed, at most once for each frame. */
  schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.show(); });
  }

  private show(): void {
    const height = this.element.clientHeight;
    this.first = Math.max(0, Math.floor(this.element.scrollTop / this.rowHeight) - 4);
    this.count = Math.min(this.items.length - this.first, Math.ceil(height / this.rowHeight) + 8);
    while (this.views.length < this.count) this.addView();
    this.views.forEach((slot, at) => {
      const index = this.first + at, isUsed = at < this.count;
      slot.view.element.hidden = !isUsed;
      if (!isUsed) { slot.item = null; return; }
      if (slot.index !== index) slot.view.element.style.transform = `translateY(${index * this.rowHeight}px)`;
      slot.index = index;
      slot.item = this.items[index]!;
      this.mark(slot.view.element, index);
      slot.view.update(slot.item, index);
    });
  }

  private mark(element: HTMLElement, index: number): void {
    const isSelected = index === this.selected;
    element.id = `row-${index}`;
    element.setAttribute("aria-rowindex", String(index + 2));
    element.setAttribute("aria-selected", String(isSelected));
    if (isSelected) this.element.setAttribute("aria-activedescendant", element.id);
  }

  private addView(): void {
    const slot = { view: this.makeView(), item: null as T | null, index: -1 };
    slot.view.element.addEventListener("click", event => {
      if ((event.target as Element).closest("a, button") || !slot.item) return;
      this.selected = slot.index;
      this.onOpen(slot.item);
    });
    this.views.push(slot);
    this.space.append(slot.view.element);
  }
}
