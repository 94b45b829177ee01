/** Loaded into a program before it starts: on SIGUSR2 it says what it has used of the machine so far. */
process.on('SIGUSR2', () => {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  const usage = { cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, peakMiB: maxRSS / 1024 };
  process.stderr.write(`usage ${JSON.stringify(usage)}\n`);
});
