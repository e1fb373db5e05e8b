// @ts-check

/**
 * Rows in the order in which the table has them now, while one of them has the focus or is under the pointer: what is about
 * to be opened stays where it is. New ones come last.
 * @template T
 * @param {HTMLTableSectionElement | null} body with the keys in its first cells
 * @param {T[]} rows
 * @param {(row: T) => string} key
 */
export function steady(body, rows, key) {
  if (!body?.matches(":focus-within, :hover")) return rows;
  const place = new Map([...body.rows].map((r, i) => [r.cells[0].textContent, i]));
  const of = (/** @type {T} */ row) => place.get(key(row)) ?? place.size;
  return [...rows].sort((a, b) => of(a) - of(b));
}
