/** Finds the names that a program may have meant. */
import { indexOfText, lowerCase, sliceText, toWellFormed } from "./intrinsics.js";

const MAX_NAMES = 5_000;
const MAX_CHARACTERS = 80;
const MAX_SUGGESTIONS = 3;
// A name that contains the other one is as near as one with this many other letters.
const CONTAINED = 2;
const MIN_CONTAINED_CHARACTERS = 4;

/** Return "nearest: owner.a, owner.b; " for the names near to `wanted`, or an empty text. */
export function nearestHint(owner, wanted, names) {
  const near = findNearest(wanted, names);
  let text = "";
  for (let index = 0; index < MAX_SUGGESTIONS && near[index] !== undefined; index++) {
    text += (index ? ", " : "nearest: ") + owner + "." + toWellFormed(near[index]);
  }
  return text && text + "; ";
}

/** Return the names at the least distance, by their place. */
function findNearest(wanted, names) {
  const plain = withoutSeparators(wanted);
  const limit = plain.length <= 4 ? 1 : plain.length <= 8 ? 2 : 3;
  let near = { __proto__: null };
  let count = 0;
  let least = limit;
  for (let index = 0; index < names.length && index < MAX_NAMES; index++) {
    const name = names[index];
    const distance = name.length > MAX_CHARACTERS ? limit + 1 : distanceOf(plain, withoutSeparators(name), limit);
    if (distance < least) {
      near = { __proto__: null };
      count = 0;
      least = distance;
    }
    if (distance === least) near[count++] = name;
  }
  return near;
}

/** Return the number of letters to change, swap, add or remove; more than `limit` if the names have little in common. */
function distanceOf(first, second, limit) {
  if (isContained(first, second) || isContained(second, first)) return CONTAINED;
  const difference = first.length - second.length;
  if (difference > limit || -difference > limit) return limit + 1;
  let before = { __proto__: null };
  let row = { __proto__: null };
  for (let column = 0; column <= second.length; column++) row[column] = column;
  for (let line = 1; line <= first.length; line++) {
    const next = { __proto__: null, 0: line };
    let least = line;
    for (let column = 1; column <= second.length; column++) {
      const replaced = row[column - 1] + (first[line - 1] === second[column - 1] ? 0 : 1);
      const changed = row[column] < next[column - 1] ? row[column] + 1 : next[column - 1] + 1;
      next[column] = replaced < changed ? replaced : changed;
      const isSwapped = line > 1 && column > 1 && first[line - 1] === second[column - 2] && first[line - 2] === second[column - 1];
      if (isSwapped && before[column - 2] < next[column]) next[column] = before[column - 2] + 1;
      if (next[column] < least) least = next[column];
    }
    if (least > limit) return limit + 1;
    before = row;
    row = next;
  }
  return row[second.length];
}

function isContained(part, whole) {
  return part.length >= MIN_CONTAINED_CHARACTERS && part.length < whole.length && indexOfText(whole, part) >= 0;
}

/** Return the name in lower case, so that `get_user` and `getUser` are the same. */
function withoutSeparators(name) {
  let text = "";
  for (let index = 0; index < name.length && index < MAX_CHARACTERS; index++) {
    const character = sliceText(name, index, index + 1);
    if (character !== "_" && character !== "-" && character !== "$") text += character;
  }
  return lowerCase(text);
}
