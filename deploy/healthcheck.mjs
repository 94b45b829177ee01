// Exits 0 when the node or hub that listens at ROWCAST_LISTEN says that it is well, and 1 otherwise, saying why.
const port = (process.env.ROWCAST_LISTEN ?? '127.0.0.1:9001').split(':').at(-1);
try {
  const answer = await fetch(`http://127.0.0.1:${port}/health`, { signal: AbortSignal.timeout(4_000) });
  const { ok, problems } = await answer.json();
  if (!ok) throw new Error(problems?.join('; ') || `answered ${answer.status}`);
} catch (error) {
  console.error(error.cause?.message ?? error.message);
  process.exit(1);
}
