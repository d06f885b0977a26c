// SPDX-License-Identifier: Apache-2.0
// xterm.js writes its rules into <style> elements, which the policy of this page refuses. Rules of style sheets that
// are made by a script are allowed, so it gets an element without a meaning, with one of those behind it.

let isDone = false;

function backed(style: HTMLTemplateElement): HTMLTemplateElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(style, "textContent", { get: () => "", set: (text: string) => sheet.replaceSync(text) });
  const remove = style.remove.bind(style);
  style.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(one => one !== sheet);
    remove();
  };
  return style;
}

export function allowStyles(): void {
  if (isDone) return;
  isDone = true;
  const create = document.createElement.bind(document);
  document.createElement = ((name: string, options?: ElementCreationOptions) => name === "style" ? backed(create("template")) : create(name, options)) as typeof document.createElement;
}
