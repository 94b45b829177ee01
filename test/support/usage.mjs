/** Loaded into a program before it starts: on SIGUSR2 it says what it has used of the machine so far. */
import { readFileSync } from 'node:fs';

process.on('SIGUSR2', () => {
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  const usage = { cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, peakMiB: peakKiB() / 1024 };
  process.stderr.write(`usage ${JSON.stringify(usage)}\n`);
});

/** Linux counts into maxRSS what the process was before it became this program: a copy of whoever has started it. */
function peakKiB() {
  try {
    return Number(/^VmHWM:\s*(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
  } catch {
    return process.resourceUsage().maxRSS;
  }
}
