// SPDX-License-Identifier: Apache-2.0
// Shows runs of code: those of before, and new ones while they run.
"use strict";

const runs = document.getElementById("runs");

function add(run, kind, text) {
    let part = run.lastElementChild;
    if (!part || part.className !== kind || kind === "code") {
        part = document.createElement("pre");
        part.className = kind;
        run.append(part);
    }
    part.textContent += text;
}

function show(run, piece) {
    for (const [kind, value] of Object.entries(piece)) {
        if (kind === "image") {
            const picture = document.createElement("img");
            picture.src = "data:image/png;base64," + value;
            picture.alt = "A plot of the code above";
            run.append(picture);
        } else if (value) {
            add(run, kind, value);
        }
    }
}

function section() {
    const run = document.createElement("section");
    runs.append(run);
    return run;
}

for (const pieces of JSON.parse(document.body.dataset.history)) {
    const run = section();
    for (const piece of pieces) show(run, piece);
}

async function execute(code) {
    const run = section();
    show(run, { code });
    const answer = await fetch("run", { method: "POST", body: code });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) show(run, JSON.parse(line));
    }
    run.dataset.done = "yes";
}

document.getElementById("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = document.getElementById("code");
    execute(field.value);
    field.value = "";
});

addEventListener("pagehide", (event) => {
    if (!event.persisted) navigator.sendBeacon("closed", document.body.dataset.permission);
});
