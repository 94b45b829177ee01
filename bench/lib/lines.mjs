/** A process that is told what to do by lines of JSON on its standard input, and answers each with a line. */
import readline from 'node:readline';

/** Ends the process when its input ends. */
export async function obey(commands) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { command, args } = JSON.parse(line);
    let answer;
    try {
      answer = { result: (await commands[command](args ?? {})) ?? null };
    } catch (error) {
      answer = { error: String(error?.stack ?? error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}
