// Asks the server whether the runs have progressed, and replaces the page by the new one.
"use strict";
(() => {
  const SHORTEST_MS = 2000;
  const status = document.createElement("p");
  status.className = "live";
  status.setAttribute("role", "status");
  document.body.append(status);
  // The tag of the page as it was loaded.
  let tag = JSON.parse(document.getElementById("tag").textContent);
  let isDragging = false;
  addEventListener("pointerdown", () => (isDragging = true));
  for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (isDragging = false));

  function renew(text) {
    // Skip the head: its styles are those of the page that is shown.
    const next = new DOMParser().parseFromString(text.slice(text.indexOf("<body>")), "text/html");
    const open = new Map([...document.querySelectorAll("details > summary")].map((one) => [one.textContent, one.parentElement.open]));
    const place = scrollY;
    const isPart = (element) => element !== status && !element.hasAttribute("nonce");
    [...document.body.children].filter(isPart).forEach((element) => element.remove());
    document.body.prepend(...[...next.body.children].filter(isPart));
    document.title = document.querySelector("h1").textContent;
    for (const summary of document.querySelectorAll("details > summary")) {
      if (open.has(summary.textContent)) summary.parentElement.open = open.get(summary.textContent);
    }
    document.dispatchEvent(new Event("renewed"));
    scrollTo(0, place);
  }

  async function ask() {
    const begun = performance.now();
    // Do not update while a reader drags, or uses the keyboard within the page.
    if (!document.hidden && !isDragging && !document.querySelector("main :focus-visible")) {
      try {
        const answer = await fetch("/", { headers: { "If-None-Match": tag }, cache: "no-store" });
        if (answer.status === 200) {
          renew(await answer.text());
          tag = answer.headers.get("ETag");
        }
        status.textContent = answer.ok || answer.status === 304 ? "" : `The server answers ${answer.status}.`;
      } catch {
        status.textContent = "The server does not answer.";
      }
    }
    setTimeout(ask, Math.max(SHORTEST_MS, 5 * (performance.now() - begun)));
  }
  setTimeout(ask, SHORTEST_MS);
})();
