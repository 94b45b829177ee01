/** Serves `/sync` on a loopback port until it is killed or its input ends; says `listening <port>` when it does. */
import { writeSync } from 'node:fs';
import http from 'node:http';
import { attach, createListener, openDatabase } from './kill-library.mjs';

const [path, port] = process.argv.slice(2);
const db = await openDatabase(path);
const manager = attach(db, { id: 'receiver', peers: [] }, ['items']);
const server = http.createServer(createListener(manager));
server.listen(Number(port), '127.0.0.1', () => writeSync(1, `listening ${server.address().port}\n`));
process.stdin.on('end', () => process.exit(0)).resume();
