// SPDX-License-Identifier: Apache-2.0
// The search of the site: ranks sections by the words of the query. It runs here alone, and sends nothing.
"use strict";

(function () {
    const STOP = new Set("a an the to of in on for do does i my it is are how what why when with and or can be use did me give get happens".split(" "));
    const SAME = {
        directory: ["directory", "folder", "mount"], folder: ["directory", "folder"], host: ["host"], internet: ["internet", "network"],
        numpy: ["numpy", "package"], pip: ["pip", "package"], install: ["install"], kill: ["kill", "die", "died", "end"], die: ["die", "died", "end", "why"],
        died: ["die", "died", "end"], expose: ["port"], secret: ["secret", "token", "password"], password: ["secret", "password"], token: ["secret", "token", "key"],
        image: ["image", "docker", "template"], machine: ["machine", "cluster", "node"], root: ["root"], nonroot: ["root"], delete: ["delete", "remove", "rm"],
        remove: ["delete", "remove", "rm"], uninstall: ["delete", "remove", "install"], cost: ["cost", "budget", "money", "price"], limit: ["limit"],
        price: ["cost", "budget", "price"], volume: ["mount", "keep"], user: ["user", "owner", "key"], restart: ["restart", "crash"], stream: ["stream"],
        persist: ["keep"], save: ["keep", "save"], everything: ["everything", "all"], github: ["ci"], actions: ["ci"],
    };

    function stem(word) {
        if (word.length > 4 && word.endsWith("ies")) return word.slice(0, -3) + "y";
        if (word.length > 5 && word.endsWith("ing")) return word.slice(0, -3);
        if (word.length > 3 && word.endsWith("s") && !word.endsWith("ss")) return word.slice(0, -1);
        return word;
    }

    function words(text) {
        return text.toLowerCase().replace(/non-root/g, "nonroot root").split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
    }

    function prepare(entry) {
        const [address, title, heading, text, weight] = entry;
        const count = new Map();
        for (const word of words(text)) count.set(stem(word), (count.get(stem(word)) || 0) + 1);
        return { address, title, heading, text, weight, count, top: new Set(words(title + " " + address.replace(/[./#]/g, " ")).map(stem)), near: new Set(words(heading).map(stem)) };
    }

    let prepared = null;
    const seen = new Map();

    function load() {
        if (prepared) return;
        prepared = window.searchIndex.map(prepare);
        for (const entry of prepared)
            for (const word of new Set([...entry.count.keys(), ...entry.top, ...entry.near])) seen.set(word, (seen.get(word) || 0) + 1);
    }

    function score(entry, terms) {
        let total = 0;
        let matched = 0;
        for (const variants of terms) {
            let best = 0;
            variants.forEach(function (word, place) {
                const rare = Math.log(1 + prepared.length / (seen.get(word) || prepared.length));
                const value = (entry.top.has(word) ? 6 : 0) + (entry.near.has(word) ? 4 : 0) + Math.min(3, Math.log2(1 + (entry.count.get(word) || 0)));
                best = Math.max(best, value * rare * (place ? 0.7 : 1));
            });
            if (best > 0) matched++;
            total += best;
        }
        return total * (matched / terms.length) ** 2 * (0.7 + 0.3 * entry.weight);
    }

    // Addresses of pages, the best first; each page once, with its best section.
    function search(query, limit) {
        load();
        const plain = words(query);
        const kept = plain.filter((word) => !STOP.has(word));
        const terms = (kept.length ? kept : plain).map(stem).map((word) => [word, ...(SAME[word] || []).filter((one) => one !== word)]);
        if (!terms.length) return [];
        const pages = new Map();
        for (const entry of prepared) {
            const value = score(entry, terms);
            const page = entry.address.split("#")[0];
            if (value > 0 && (!pages.has(page) || pages.get(page).value < value)) pages.set(page, { value, entry });
        }
        return [...pages.values()].sort((a, b) => b.value - a.value).slice(0, limit || 10).map((one) => one.entry);
    }

    window.searchPages = search;
    if (typeof document === "undefined") return;

    const input = document.getElementById("query");
    const results = document.getElementById("results");
    const base = document.body.dataset.base;

    function show() {
        const found = search(input.value, 8);
        results.textContent = "";
        for (const entry of found) {
            const item = document.createElement("li");
            const link = document.createElement("a");
            link.href = base + entry.address;
            link.textContent = entry.title + (entry.heading && entry.heading !== entry.title ? " › " + entry.heading : "");
            const excerpt = document.createElement("span");
            excerpt.textContent = entry.text.slice(0, 120);
            item.append(link, excerpt);
            results.append(item);
        }
        if (!found.length && input.value.trim()) {
            const item = document.createElement("li");
            item.textContent = "Nothing was found.";
            results.append(item);
        }
        results.hidden = !input.value.trim();
    }

    input.addEventListener("input", show);
    document.addEventListener("keydown", function (event) {
        if (event.key === "/" && document.activeElement !== input) {
            event.preventDefault();
            input.focus();
        } else if (event.key === "Escape") {
            results.hidden = true;
        } else if (event.key === "Enter" && document.activeElement === input) {
            const first = results.querySelector("a");
            if (first) window.location.href = first.href;
        }
    });
    document.addEventListener("click", function (event) {
        if (!event.target.closest(".search")) results.hidden = true;
    });
})();
