// A line that follows the pointer through all charts, and what they say there. The page is whole without it.
"use strict";
const charts = document.querySelector(".charts[data-width]");
const plots = charts ? [...charts.querySelectorAll(".plot[data-values]")] : [];
if (plots.length) {
  const end = Number(charts.dataset.end), width = Number(charts.dataset.width);
  const values = plots.map((plot) => plot.dataset.values.split("|"));
  const readout = charts.querySelector(".readout");
  const resting = readout.textContent;
  const lines = [...charts.querySelectorAll(".plot, .strip")].map((place) => {
    const line = document.createElement("div");
    line.className = "pointer";
    line.hidden = true;
    place.append(line);
    return line;
  });
  const rest = () => {
    readout.textContent = resting;
    for (const line of lines) line.hidden = true;
  };
  charts.addEventListener("pointermove", (event) => {
    const box = plots[0].getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    if (part < 0 || part > 1) return rest();
    const bin = Math.floor((part * end) / width);
    const said = values.map((each) => each[bin]).filter(Boolean);
    readout.textContent = `${(part * end).toFixed(1)} s: ${said.join(" · ") || "nothing"}`;
    for (const line of lines) {
      line.hidden = false;
      line.style.left = `${100 * part}%`;
    }
  });
  charts.addEventListener("pointerleave", rest);
}
