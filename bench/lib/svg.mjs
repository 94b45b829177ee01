/** Small plots, written by hand: no library, readable on light and on dark pages. */
const WIDTH = 560;
const HEIGHT = 280;
const COLOURS = ['#3b76d6', '#d1793b', '#4a9a5b', '#a05bb5', '#8a8a8a', '#c2485d', '#3a9aa5', '#b59a3b'];

export function plot(spec) {
  return spec.kind === 'bars' ? bars(spec) : lines(spec);
}

/** `{title, x: {label, values, logarithmic?}, y: {label}, series: [{label, values}]}`; the y axis begins with zero. */
function lines({ title, x, y, series }) {
  const box = { left: 64, top: 58, right: WIDTH - 32, bottom: HEIGHT - 46 };
  const place = (value) => (x.logarithmic ? Math.log(value) : value);
  const [low, high] = [place(Math.min(...x.values)), place(Math.max(...x.values))];
  const known = series.flatMap(({ values }) => values).filter(Number.isFinite);
  const ticks = niceTicks(Math.max(...known, 0));
  const top = ticks.at(-1);
  const px = (value) => box.left + ((place(value) - low) / (high - low || 1)) * (box.right - box.left);
  const py = (value) => box.bottom - (value / top) * (box.bottom - box.top);
  const parts = [heading(title, y.label)];
  for (const tick of ticks) {
    parts.push(line(box.left, py(tick), box.right, py(tick), 'grid'));
    parts.push(text(box.left - 6, py(tick) + 4, number(tick), 'end'));
  }
  for (const value of x.values) parts.push(text(px(value), box.bottom + 16, number(value), 'middle'));
  parts.push(text((box.left + box.right) / 2, HEIGHT - 10, x.label, 'middle'));
  series.forEach(({ label, values }, i) => {
    const colour = COLOURS[i % COLOURS.length];
    const points = values
      .map((value, j) => [px(x.values[j]), py(value)])
      .filter(([, at]) => Number.isFinite(at))
      .map((point) => point.map((n) => n.toFixed(1)).join(','));
    parts.push(`<polyline points="${points.join(' ')}" fill="none" stroke="${colour}" stroke-width="2"/>`);
    for (const point of points) {
      const [cx, cy] = point.split(',');
      parts.push(`<circle cx="${cx}" cy="${cy}" r="3" fill="${colour}"/>`);
    }
    parts.push(legend(box.left + i * 150, 46, label, colour));
  });
  return frame(title, HEIGHT, parts);
}

/** `{title, unit, bars: [{label, value, low, high, target?}]}`: one bar a line, its spread as a whisker. */
function bars({ title, unit, bars: list, logarithmic = false }) {
  const box = { left: 230, top: 40, right: WIDTH - 70 };
  const step = 26;
  const height = box.top + list.length * step + 14;
  const most = Math.max(...list.map(({ high, value, target }) => Math.max(high ?? value, target ?? 0)));
  const least = Math.min(...list.map(({ low, value }) => low ?? value)) / 2;
  const px = (value) => {
    const share = logarithmic ? Math.log(Math.max(value, least) / least) / Math.log(most / least) : value / most;
    return box.left + share * (box.right - box.left);
  };
  const parts = [heading(title, logarithmic ? `${unit}, logarithmic` : unit)];
  list.forEach(({ label, value, low, high, target }, i) => {
    const at = box.top + i * step;
    const colour = COLOURS[i === 0 ? 0 : 4];
    parts.push(text(box.left - 8, at + 15, label, 'end'));
    parts.push(
      `<rect x="${box.left}" y="${at + 4}" width="${Math.max(1, px(value) - box.left).toFixed(1)}" height="16" fill="${colour}"/>`,
    );
    if (low !== undefined && high > low) parts.push(line(px(low), at + 12, px(high), at + 12, 'whisker'));
    if (target !== undefined) parts.push(line(px(target), at, px(target), at + 24, 'target'));
    parts.push(text(Math.max(px(value), px(high ?? value)) + 6, at + 16, number(value), 'start'));
  });
  return frame(title, height, parts);
}

function frame(title, height, parts) {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="12">
<title>${escaped(title)}</title>
<style>text{fill:#333}.grid{stroke:#8884;stroke-width:1}.whisker{stroke:#222;stroke-width:1.5}.target{stroke:#c2485d;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#ccc}.whisker{stroke:#eee}}</style>
${parts.join('\n')}
</svg>
`;
}

function heading(title, unit) {
  return `<text x="12" y="20" font-size="14" font-weight="600">${escaped(title)}</text>\n${text(WIDTH - 12, 20, unit, 'end')}`;
}

function legend(x, y, label, colour) {
  return `<rect x="${x}" y="${y - 9}" width="10" height="10" fill="${colour}"/>${text(x + 15, y, label, 'start')}`;
}

function text(x, y, content, anchor) {
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escaped(String(content))}</text>`;
}

function line(x1, y1, x2, y2, kind) {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" class="${kind}"/>`;
}

function niceTicks(most) {
  const rough = (most || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const count = Math.ceil((most || 1) / step);
  return Array.from({ length: count + 1 }, (_, i) => i * step);
}

function number(value) {
  const digits = value === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString('en', { maximumFractionDigits: digits });
}

function round(n) {
  return Number(n.toFixed(1));
}

function escaped(content) {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
