// The bar of every page leads to the entries of this one; where an entry's page is there, this goes on to it.
function goOn() {
  const page = document.getElementById(location.hash.slice(1))?.dataset.page;
  if (page) location.replace(page);
}
addEventListener("hashchange", goOn);
goOn();
