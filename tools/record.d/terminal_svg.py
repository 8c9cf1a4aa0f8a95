"""A terminal's screen as SVG: text, so that it is small, sharp at any size, and can be searched."""

from xml.sax.saxutils import escape, quoteattr

CELL_WIDTH, LINE_HEIGHT, FONT_SIZE = 7.8, 17, 13
MARGIN, BAR = 14, 26
BACKGROUND, FOREGROUND = "#1c2128", "#d6deeb"
FONTS = "ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"
COLORS = {"red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "yellow": "#e3b341", "blue": "#79c0ff",
          "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": "#ffffff", "black": "#8b949e"}
PROMPTS = ("$ ", "osprey> ")
PROMPT_COLOR, COMMAND_COLOR = "#7ee787", "#ffffff"


def runs_of(row):
    """Cells of one look: (column, text, colour, bold). What was typed is set apart from what was answered."""
    text = "".join(cell.data for cell in row).rstrip()
    prompt = next((p for p in PROMPTS if text.startswith(p)), "")
    runs = []
    for column, cell in enumerate(row[:len(text)]):
        color, bold = COLORS.get(cell.fg, FOREGROUND), cell.bold
        if column < len(prompt):
            color = PROMPT_COLOR
        elif prompt:
            color, bold = COMMAND_COLOR, True
        if runs and runs[-1][2:] == (color, bold):
            runs[-1] = (runs[-1][0], runs[-1][1] + cell.data, color, bold)
        else:
            runs.append((column, cell.data, color, bold))
    return runs


def text_element(column, baseline, text, color, bold):
    blank = len(text) - len(text.lstrip())
    text = text.strip()
    if not text:
        return ""
    # With textLength columns meet whatever font there is.
    x, length = MARGIN + (column + blank) * CELL_WIDTH, len(text) * CELL_WIDTH
    look = (f' fill="{color}"' if color != FOREGROUND else "") + (' font-weight="bold"' if bold else "")
    return (f'<text x="{x:.1f}" y="{baseline:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
            f'{look} xml:space="preserve">{escape(text)}</text>\n')


def draw(rows, columns, title):
    while rows and not "".join(cell.data for cell in rows[-1]).strip():
        rows = rows[:-1]
    width = round(columns * CELL_WIDTH + 2 * MARGIN)
    height = round(BAR + len(rows) * LINE_HEIGHT + MARGIN + 4)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(title)}>\n'
             f"<title>{escape(title)}</title>\n"
             f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n']
    for i, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        parts.append(f'<circle cx="{18 + 18 * i}" cy="14" r="5" fill="{color}"/>\n')
    parts.append(f'<g font-family={quoteattr(FONTS)} font-size="{FONT_SIZE}" fill="{FOREGROUND}">\n')
    for y, row in enumerate(rows):
        baseline = BAR + (y + 1) * LINE_HEIGHT - 4
        parts += [text_element(column, baseline, text, color, bold) for column, text, color, bold in runs_of(row)]
    return "".join(parts) + "</g>\n</svg>\n"
