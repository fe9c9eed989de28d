"""HTML, Markdown, JUnit, JSON and the one line, all from one `Verdict`."""
