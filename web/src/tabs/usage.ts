// SPDX-License-Identifier: Apache-2.0
// What the sandbox uses over time: as the daemon has sampled it, or as this page measures it where the daemon does not.

import uPlot from "uplot";
import { ApiError, type Session } from "../api";
import { bytes, empty, h, replace } from "../dom";
import type { Context, Tab } from "../session";

interface Sample { time: number; cpu: number | null; memory: number; pids: number; disk: number; cpuSeconds: number }
interface Answer { samples: { time: string; cpu_seconds: number; cpu_percent: number; memory_bytes: number; disk_bytes: number; pids: number }[]; interval: number }

const KEPT = 5000;

const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Plot {
  private plot: uPlot | null = null;
  readonly box = h("div", { class: "plot" });
  private readonly value = h("strong");
  readonly element: HTMLElement;

  constructor(title: string, private readonly pick: (sample: Sample) => number | null, private readonly write: (value: number) => string, private readonly limit: number | null) {
    this.element = h("figure", { class: "plot-box" }, h("figcaption", null, title, " ", this.value, limit ? h("span", { class: "muted" }, ` of ${write(limit)}`) : null), this.box);
    new ResizeObserver(() => { if (this.box.clientWidth) this.plot?.setSize({ width: this.box.clientWidth, height: 150 }); }).observe(this.box);
  }

  show(samples: Sample[]): void {
    const values = samples.map(this.pick), last = values.filter(value => value !== null).pop();
    this.value.textContent = last === undefined || last === null ? "–" : this.write(last);
    const data: uPlot.AlignedData = [samples.map(sample => sample.time / 1000), values];
    if (this.plot) { this.plot.setData(data); return; }
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    this.plot = new uPlot({ width: this.box.clientWidth || 600, height: 150, padding: [8, 12, 0, 0], legend: { show: false }, cursor: { y: false }, scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.15, (this.limit ?? 0) * 0.02, 1e-9)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(tick => new Date(tick * 1000).toLocaleTimeString(undefined, { hour12: false })), space: 90 }, { ...axis, size: 64, values: (_, ticks) => ticks.map(tick => this.write(tick)) }],
      series: [{}, { stroke: colour("--accent"), fill: colour("--accent-soft"), width: 1.5, spanGaps: true, points: { show: false } }] }, data, this.box);
  }

  close(): void { this.plot?.destroy(); }
}

export async function usageTab(context: Context): Promise<Tab> {
  const { limits } = context.session();
  const plots = [new Plot("CPU", sample => sample.cpu, value => `${Math.round(value)}%`, limits.cpus ? limits.cpus * 100 : null), new Plot("Memory", sample => sample.memory, bytes, limits.memory_bytes),
    new Plot("Processes", sample => sample.pids, value => String(Math.round(value)), limits.pids), new Plot("Disk", sample => sample.disk, bytes, limits.disk_bytes)];
  const note = h("p", { class: "muted" }), element = h("div", { class: "usage" }, note, plots.map(plot => plot.element));
  let samples: Sample[] = [];
  if (context.session().state === "ended") return { element: empty("The session has ended: there is nothing to measure.", "Each execution in the Executions tab has its own totals.") };

  /** What the daemon has sampled until now. */
  async function readHistory(): Promise<void> {
    try {
      const answer = await context.api.get<Answer>("/usage");
      samples = answer.samples.map(one => ({ time: Date.parse(one.time), cpu: one.cpu_percent, memory: one.memory_bytes, pids: one.pids, disk: one.disk_bytes, cpuSeconds: one.cpu_seconds }));
      note.textContent = `Measured by the daemon every ${answer.interval} s, and every two seconds while this tab is open.`;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      note.textContent = "Measured every two seconds while this tab is open.";
    }
  }

  async function measure(): Promise<void> {
    const { usage } = await context.api.get<Session>("?usage=1");
    if (!usage) return;
    const time = Date.parse(usage.measured_at), before = samples[samples.length - 1];
    if (before && time < before.time + 1000) return; // too soon to be a rate
    samples.push({ time, cpu: before && usage.cpu_seconds >= before.cpuSeconds ? (usage.cpu_seconds - before.cpuSeconds) / (time - before.time) * 100000 : null,
      memory: usage.memory_bytes, pids: usage.pids, disk: usage.disk_bytes, cpuSeconds: usage.cpu_seconds });
  }

  async function look(): Promise<void> {
    await measure();
    samples = samples.slice(-KEPT);
    if (samples.length) for (const plot of plots) plot.show(samples);
    else note.textContent = "There is no sandbox now: the next use of the session makes one.";
  }
  await readHistory();
  await look();
  // The width is known once the tab is in the document.
  const first = setTimeout(() => void look().catch(() => undefined), 50);
  const timer = setInterval(() => { if (!document.hidden) void look().catch(() => undefined); }, 2000);
  replace(element, note, plots.map(plot => plot.element));
  return { element, close: () => { clearInterval(timer); clearTimeout(first); for (const plot of plots) plot.close(); } };
}
