/** One line that says where the run is; on a terminal it is overwritten, elsewhere every step is a line. */
const began = Date.now();
let width = 0;

export function progress(text) {
  const seconds = Math.round((Date.now() - began) / 1_000);
  const clock = `${String(Math.floor(seconds / 60)).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}`;
  const line = `${clock}  ${text}`;
  if (!process.stderr.isTTY) {
    process.stderr.write(`${line}\n`);
    return;
  }
  process.stderr.write(`\r${line.slice(0, process.stderr.columns - 1).padEnd(width)}`);
  width = Math.min(line.length, process.stderr.columns - 1);
}

/** Before anything else is printed. */
export function clearProgress() {
  if (process.stderr.isTTY) process.stderr.write(`\r${' '.repeat(width)}\r`);
  width = 0;
}
