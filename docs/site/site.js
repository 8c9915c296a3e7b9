// SPDX-License-Identifier: Apache-2.0
// Dark and light, which is kept, and the search over pages.js.
const root = document.documentElement;
function chosen() { try { return localStorage.getItem("kasane-colours"); } catch { return null; } }
if (chosen()) root.classList.add(chosen());
document.getElementById("colours").onclick = () => {
  const dark = getComputedStyle(root).colorScheme === "dark";
  root.classList.remove("dark", "light");
  root.classList.add(dark ? "light" : "dark");
  try { localStorage.setItem("kasane-colours", dark ? "light" : "dark"); } catch { /* of a file: not kept */ }
};
const found = document.getElementById("found");
document.getElementById("search").oninput = (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.textContent = "";
  if (!words.length) return;
  const hits = [];
  for (const part of kasanePages) {   // heading by heading
    const head = (part.page + " " + part.head).toLowerCase(), text = part.text.toLowerCase();
    if (!words.every((word) => head.includes(word) || text.includes(word))) continue;
    hits.push([words.filter((word) => head.includes(word)).length, part, text.indexOf(words[0])]);
  }
  hits.sort((a, b) => b[0] - a[0]);
  for (const [, part, at] of hits.slice(0, 20)) {
    const link = document.createElement("a");
    link.href = kasaneRoot + part.url;
    link.textContent = part.page === part.head ? part.head : part.page + ": " + part.head;
    const some = document.createElement("small");
    some.textContent = part.text.slice(Math.max(0, at - 40), Math.max(0, at) + 80);
    link.append(some);
    found.append(link);
  }
  if (!hits.length) found.textContent = "nothing found";
};
