/** Databases that are at no URL of ours and are remembered: whoever can send can make up any number of them. */
export const STRANGERS_KEPT = 1_000;

/** The latest times of them: ids can be made up as well. */
export function noteAt<T>(times: Map<string, T>, id: string, now: T): void {
  times.delete(id);
  times.set(id, now);
  const [oldest] = times.keys();
  if (times.size > STRANGERS_KEPT && oldest !== undefined) times.delete(oldest);
}
