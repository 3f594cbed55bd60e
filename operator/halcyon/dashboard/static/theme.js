// Applies the theme that was chosen before the first paint. A classic script, which the operator puts into the page (page_files.py).

try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // The browser stores nothing.
}
