"use strict";
// Sorts tables by the column whose heading is clicked, or chosen with Enter or Space.
// A number is in data-value, or begins the text of an estimate with its interval; missing cells stay
// last. Lines below a rule are sorted on their own.

function compare(first, second) {
  const numbers = [first, second].map((cell) =>
    Number.parseFloat(cell.dataset.value ?? cell.textContent));
  if (numbers.every(Number.isFinite)) return numbers[0] - numbers[1];
  const texts = [first, second].map((cell) => cell.textContent.trim());
  return texts[0].localeCompare(texts[1], "en", { numeric: true });
}

function isMissing(cell) {
  return !cell || cell.classList.contains("missing");
}

function sort(table, column, sign) {
  const body = table.tBodies[0];
  const blocks = [];
  for (const row of body.rows) {
    if (!blocks.length || row.classList.contains("separated")) blocks.push([]);
    blocks.at(-1).push(row);
  }
  for (const rows of blocks) {
    const separated = rows[0].classList.contains("separated");
    rows[0].classList.remove("separated");
    rows.sort((one, other) => {
      const cells = [one.cells[column], other.cells[column]];
      const missing = cells.map(isMissing);
      if (missing[0] || missing[1]) return missing[0] - missing[1];
      return sign * compare(...cells);
    });
    if (separated) rows[0].classList.add("separated");
    body.append(...rows);
  }
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(table, column, ascending ? 1 : -1);
    });
  });
}
// Paper shows everything except manifests.
addEventListener("beforeprint", () => {
  for (const block of document.querySelectorAll("main > section > details")) block.open = true;
});
