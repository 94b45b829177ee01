/**
 * Frames of a terminal as one SVG. It moves by CSS alone, as a strip of frames behind a window; where nothing moves (a
 * printer, a reader who prefers it so) the last frame is shown.
 */

/** Faster than this nobody reads, longer than that nobody waits. */
const FRAME_MS = { least: 400, most: 2_500, last: 5_000 };
const CELL = { width: 8.43, height: 18 };
const PADDING = 16;
const FONT = "14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const COLOURS = {
  background: '#0d1117',
  text: '#c9d1d9',
  dim: '#8b949e',
  red: '#ff7b72',
  green: '#7ee787',
  yellow: '#e3b341',
};

export function filmOf(recorded, { columns, rows, title }) {
  const frames = timed(recorded);
  const width = Math.ceil(columns * CELL.width) + 2 * PADDING;
  const height = (rows + 2) * CELL.height + 2 * PADDING;
  // A line that stays the same from frame to frame is written once.
  const known = new Map();
  const idOf = (line) => {
    const drawn = drawLine(line);
    if (!known.has(drawn)) known.set(drawn, `l${known.size}`);
    return known.get(drawn);
  };
  const strip = frames.map((frame, index) => drawFrame(frame, index * width, rows, idOf));
  const definitions = [...known].map(([drawn, id]) => `<g id="${id}">${drawn}</g>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escaped(title)}</title>
<style>
text { font: ${FONT}; fill: ${COLOURS.text}; white-space: pre; }
.bold { font-weight: bold; fill: #ffffff; }
${['dim', 'red', 'green', 'yellow'].map((style) => `.${style} { fill: ${COLOURS[style]}; }`).join('\n')}
${motion(frames, width)}
</style>
<defs>
${definitions.join('\n')}
</defs>
<rect width="${width}" height="${height}" rx="8" fill="${COLOURS.background}"/>
<g class="strip" transform="translate(${-(frames.length - 1) * width} 0)">
${strip.join('\n')}
</g>
</svg>
`;
}

/** How long each frame is shown. Of frames that follow too quickly, the last is kept. */
function timed(recorded) {
  const frames = [];
  for (const [index, frame] of recorded.entries()) {
    const next = recorded[index + 1];
    const begins = frames.at(-1)?.ends ?? 0;
    if (next && next.at - begins < FRAME_MS.least && next.caption === frame.caption) continue;
    frames.push({ ...frame, begins, ends: next ? Math.max(next.at, begins + FRAME_MS.least) : begins });
  }
  return frames.map((frame, index) => ({
    ...frame,
    ms: index === frames.length - 1 ? FRAME_MS.last : Math.min(frame.ends - frame.begins, FRAME_MS.most),
  }));
}

function motion(frames, width) {
  const total = frames.reduce((sum, { ms }) => sum + ms, 0);
  let at = 0;
  const stops = frames.map(({ ms }, index) => {
    const stop = `${((100 * at) / total).toFixed(2)}% { transform: translateX(${-index * width}px); }`;
    at += ms;
    return stop;
  });
  return `@media (prefers-reduced-motion: no-preference) {
.strip { animation: play ${(total / 1_000).toFixed(1)}s step-end infinite; }
}
@keyframes play {
${stops.join('\n')}
}`;
}

function drawFrame({ lines, caption }, x, rows, idOf) {
  const top = (row) => PADDING + (row + 1) * CELL.height - 4;
  const uses = lines.flatMap((line, row) => (line.length > 0 ? [`<use href="#${idOf(line)}" y="${top(row)}"/>`] : []));
  const said = idOf([{ style: 'yellow', text: `> ${caption}` }]);
  return `<g transform="translate(${x + PADDING} 0)">${uses.join('')}<use href="#${said}" y="${top(rows + 1)}"/></g>`;
}

/** Every span at its own column, and as wide as its columns, whatever font is found. */
function drawLine(spans) {
  let column = 0;
  return spans
    .map(({ style, text }) => {
      const x = (column * CELL.width).toFixed(1);
      column += text.length;
      if (text.trim() === '') return '';
      const length = (text.length * CELL.width).toFixed(1);
      const name = style ? ` class="${style}"` : '';
      return `<text x="${x}" textLength="${length}" xml:space="preserve"${name}>${escaped(text)}</text>`;
    })
    .join('');
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
