/** What a test leaves behind is put away when it ends. */

type Cleanup = () => unknown;
const cleanups: Cleanup[] = [];

/** Runs after the test, latest first. */
export function cleanUp(action: Cleanup): void {
  cleanups.push(action);
}

export async function cleanUpAll(): Promise<void> {
  for (const action of cleanups.splice(0).reverse()) await action();
}
