// What scrolls on a phone, such as code, tables and formulas, is reached by the keyboard.
document$.subscribe(() =>
  requestAnimationFrame(() => {
    for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, math"))
      if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }),
);
