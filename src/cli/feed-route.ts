/** The feed of `rowcast serve`, to those who may read the items, for as long as they may. */
import type { Answer, Incoming, Outgoing } from '../http/bridge.ts';
import { answerChanges, CHANGES_PATH, type ChangesOptions, type Fed } from '../http/changes.ts';
import type { Tokens } from './tokens.ts';

export function withChanges(fed: Fed, tokens: Tokens, options: ChangesOptions, otherwise: Answer): Answer {
  const answer = answerChanges(fed, options);
  return async (incoming) => {
    if (incoming.path !== CHANGES_PATH) return await otherwise(incoming);
    const refusal = (): Outgoing | undefined => tokens.refusal(incoming, 'read');
    const given = refusal() ?? ((await answer(incoming)) as Outgoing);
    // Whoever polls has waited, perhaps for longer than the token counted.
    return refusal() ?? whileAllowed(given, incoming, tokens);
  };
}

/** A stream may last for weeks: to a token that was taken away meanwhile nothing more is told. */
function whileAllowed(given: Outgoing, incoming: Incoming, tokens: Tokens): Outgoing {
  const { stream } = given;
  if (!stream) return given;
  return {
    ...given,
    stream: (outlet) =>
      stream({
        gone: outlet.gone,
        write: async (text) => {
          if (tokens.refusal(incoming, 'read')) throw new Error('the token of this reader counts no more');
          await outlet.write(text);
        },
      }),
  };
}
