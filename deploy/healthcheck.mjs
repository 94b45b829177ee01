// Exits 0 when the node or hub that listens at ROWCAST_LISTEN says that it is well, and 1 otherwise, saying why.
import { readFileSync } from 'node:fs';
import { request as plain } from 'node:http';
import { request as secure } from 'node:https';

const { ROWCAST_LISTEN, ROWCAST_CONFIG, ROWCAST_TLS_CERT, ROWCAST_TLS_KEY, ROWCAST_STORE, ROWCAST_STORE_FILE } =
  process.env;
try {
  const file = ROWCAST_CONFIG ? JSON.parse(readFileSync(ROWCAST_CONFIG, 'utf8')) : {};
  const [, host, port] = /^(?:\[?(.*?)\]?:)?(\d+)$/.exec(ROWCAST_LISTEN ?? file.listen ?? '127.0.0.1:9001') ?? [];
  const cert = ROWCAST_TLS_CERT ?? file['tls-cert'];
  const key = ROWCAST_TLS_KEY ?? file['tls-key'];
  // It asks itself, and whatever name is in the certificate, it is not that of this address. Where clients have to show one,
  // this shows the same.
  const shown = cert && { cert: readFileSync(cert), key: readFileSync(key), rejectUnauthorized: false };
  // What all of a group have is no reason to end one of them, and then the next.
  const isOfGroup = ROWCAST_STORE || ROWCAST_STORE_FILE || file['store-file'];
  const { status, text } = await asked(cert ? secure : plain, {
    host: reachable(host),
    port,
    path: isOfGroup ? '/readyz' : '/health',
    ...shown,
  });
  const { ok, ready, problems } = JSON.parse(text);
  if (!(ok ?? ready)) throw new Error(problems?.join('; ') || `answered ${status}`);
} catch (error) {
  console.error(error.message || error.code);
  process.exit(1);
}

/** Of every address of this machine, one. */
function reachable(host) {
  if (host === '::') return '::1';
  return !host || host === '0.0.0.0' ? '127.0.0.1' : host;
}

function asked(request, options) {
  return new Promise((resolve, reject) => {
    const asking = request({ ...options, agent: false, signal: AbortSignal.timeout(4_000) }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (some) => {
        text += some;
      });
      answer.on('end', () => resolve({ status: answer.statusCode, text })).on('error', reject);
    });
    asking.on('error', reject).end();
  });
}
