// Tables that are sorted by a click on a column's name, and a field that hides the rows without a word.
"use strict";
const order = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending" ||
        (head.classList.contains("n") && head.getAttribute("aria-sort") !== "descending");
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [one, other] = [key(a), key(b)];
        if (!one || !other) return one ? -1 : other ? 1 : 0; // what is not known comes last
        return (falling ? -1 : 1) * order.compare(one, other);
      });
      table.tBodies[0].append(...rows);
    });
  });
}
const field = document.querySelector("input.find");
if (field) {
  field.hidden = false;
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase().split(/\s+/);
    for (const row of document.querySelectorAll("table.runs tbody tr")) {
      const said = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => said.includes(word));
    }
  });
}
