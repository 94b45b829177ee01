// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the planted bugs quote template strings of the sources.
/**
 * Planted bugs: each is a wrong turn that an implementation like this one could take, and has been taken somewhere. They are
 * put into a copy of the compiled sources; nothing in the shipped code knows of them.
 *
 * `focus` is the theme whose schedules are tried first, because it has what the bug needs.
 *
 * An edit is `[file, text, replacement]`, and the text must be there exactly once: a mutant that no longer finds its
 * place is an error, not a success.
 */

const LATER = 'void this.#clock.sleep(20).then(() => ';
const BATCH_ID = 'JSON.parse(new TextDecoder().decode(body)).batch_id';

export const MUTANTS = [
  {
    name: 'unsigned-refusal-believed',
    focus: 'keys',
    what: 'what refuses a batch without a signature is believed',
    edits: [
      [
        'send/bond.js',
        "if (verified.kind === 'unsigned')\n            throw",
        "if (verified.kind === 'unsigned' && status >= 400)\n            return;\n        if (verified.kind === 'unsigned')\n            throw",
      ],
    ],
  },
  {
    name: 'another-node-answers',
    focus: 'keys',
    what: 'whoever has the key may answer at any URL',
    edits: [['send/pins.js', 'if (pinned !== undefined && pinned !== id) {', 'if (false) {']],
  },
  {
    name: 'tick-not-flushed',
    focus: 'lives',
    what: 'a database tells a tick that is not on its disk',
    edits: [
      [
        'identity/identity.js',
        'boot,\n            t0,\n            tick,\n            seal: sealOf(own, { boot, tick })',
        'boot,\n            t0,\n            tick: tick + 1,\n            seal: sealOf(own, { boot, tick: tick + 1 })',
      ],
    ],
  },
  {
    name: 'you-without-inc',
    focus: 'lives',
    what: 'what is remembered of another database is taken for what is remembered of this one',
    edits: [
      [
        'identity/later.js',
        'you?.inc === own.inc && isBehind(own, you) && isSealedBy(own, you)',
        'you !== undefined && isBehind(own, you)',
      ],
    ],
  },
  {
    name: 'renew-twice',
    focus: 'lives',
    what: 'a database that has taken another identity takes one more',
    edits: [
      ['identity/identity.js', 'if (own.inc !== given)\n                return false;', ''],
      ['identity/identity.js', 'this.#renewing = undefined;', ''],
    ],
  },
  {
    name: 'own-rows-skipped-on-a-hub-seed',
    focus: 'lives',
    what: 'an edge that has lost its data is not sent what it brought itself',
    edits: [
      ['hub/sqlite-receive.js', 'readIntroduction(said)?.inc ?? nodeId', 'nodeId'],
      ['hub/edges.js', 'if (this.position < this.#row.anewUpto)\n            return undefined;', ''],
      ['hub/edges.js', 'return this.inc ?? (', 'return ('],
    ],
  },
  {
    name: 'name-not-noted',
    focus: 'lives',
    what: 'what came from a database that is gone is not passed on',
    edits: [['send/company.js', 'if (!compareAll)', 'if (true)']],
  },
  {
    name: 'adopt-counted-as-replaced',
    focus: 'lives',
    what: 'a peer that introduces itself for the first time is taken for another one',
    edits: [['send/company.js', 'this.#adopt(peer, finding, plain !== null);', "this.#replace(peer, '', finding);"]],
  },
  {
    name: 'inc-not-noted-at-first-contact',
    focus: 'lives',
    what: 'which database acknowledged first at a URL is not noted',
    edits: [['send/company.js', 'noteDatabase(this.#db, peer, inc);\n        if (wentBack)', 'if (wentBack)']],
  },
  {
    name: 'not-seeded-when-it-went-back',
    focus: 'lives',
    what: 'a peer that was put back from a backup is not given what it lacks',
    edits: [
      ['send/company.js', "for (const peer of peers)\n            beginSeed(this.#db, peer, now, 'restored');", ''],
      ['send/company.js', "beginSeed(this.#db, peer, now, 'replaced');", ''],
      ['send/company.js', 'if (!compareAll)', 'if (true)'],
    ],
  },
  {
    name: 'repair-with-the-older',
    focus: 'comparison',
    what: 'a comparison sends what is older here, and fetches what is older there',
    edits: [
      ['compare/verify.js', "newerSide(one) !== 'there').map(", "newerSide(one) === 'there').map("],
      ['compare/verify.js', "newerSide(one) !== 'here');", "newerSide(one) === 'here');"],
    ],
  },
  {
    name: 'plain-greater',
    what: 'of two versions at the same time, the one that is there stays',
    edits: [
      [
        'receive/merge.js',
        'AND ${outweighs(table, shape, target, (column) => `excluded.${quote(column.name)}`)})`',
        'AND 0)`',
      ],
    ],
  },
  {
    name: 'arrival-wins-ties',
    what: 'of two versions at the same time, the later arrival wins',
    edits: [
      [
        'receive/merge.js',
        '(${shown(table, target, source)} >= excluded.${updatedAt}) IS NOT 1',
        '(${shown(table, target, source)} > excluded.${updatedAt}) IS NOT 1',
      ],
    ],
  },
  {
    name: 'no-tombstones',
    what: 'a received write does not ask whether its row was deleted',
    edits: [['receive/merge.js', '`AND g.version >= ${source.ua}))`', '`AND 0))`']],
  },
  {
    name: 'floor-not-checked',
    focus: 'comparison',
    what: 'a received write does not ask how far tombstones were collected',
    edits: [['receive/merge.js', '> ${table.floor} OR ${isLive(table, source)})`', '> ${table.floor} OR 1)`']],
  },
  {
    name: 'floor-lowered',
    focus: 'comparison',
    what: 'the floor is where the latest collection was, though an earlier one went higher',
    edits: [
      ['capture/floors.js', 'SET value = max(value, excluded.value)', 'SET value = excluded.value'],
      ['tombstones/collect.js', 'floor > (registry.get(name)?.floor ?? floor)', 'floor !== registry.get(name)?.floor'],
    ],
  },
  {
    name: 'forgotten-is-taken',
    focus: 'comparison',
    what: 'a comparison fetches rows that were deleted here and whose tombstones were collected',
    edits: [['compare/forgotten.js', 'if (!here && isBelow(there, floors.here))', 'if (0)']],
  },
  {
    name: 'undelivered-is-forgotten',
    focus: 'comparison',
    what: 'a comparison deletes a row that the other side was never told of, because the other side has forgotten as much',
    edits: [
      ['compare/sqlite-ledger.js', 'undelivered: undeliveredOf(this.#db, table, some, watermark),', 'undelivered: [],'],
    ],
  },
  {
    name: 'set-aside-is-forgotten',
    focus: 'comparison',
    what: 'a comparison deletes a row that the other side has set aside for a person to decide',
    edits: [['compare/sqlite-ledger.js', 'parked: parkedOf(this.#db, table, some),', 'parked: [],']],
  },
  {
    name: 'on-its-way-by-one-name',
    focus: 'migration:rename-table',
    what: 'a comparison looks for what is on its way, and for what was set aside, by the present name of a table alone',
    edits: [['compare/sqlite-on-its-way.js', 'return [name, wireName, ...was];', 'return [name];']],
  },
  {
    name: 'unknown-edge-has-everything',
    focus: 'absence+relays',
    what: 'a hub tells an edge of which it does not know how far it is that nothing is on its way to it',
    edits: [['hub/comparisons.js', 'return position === undefined ?', 'return false ?']],
  },
  {
    name: 'insert-below-floor',
    focus: 'comparison',
    what: 'a row that is inserted under an old id begins below what was collected',
    edits: [
      ['capture/triggers.js', '` OR ${time} <= ${table.floor}`', "''"],
      ['capture/triggers.js', "` AND ${timeOf(table, 'NEW')} > ${table.floor}`", "''"],
    ],
  },
  {
    name: 'deletes-lose-ties',
    what: 'a deletion does not remove a row of the same time',
    edits: [
      [
        'receive/merge.js',
        "WHERE (${shown(table, 't', source)} > ${source.ua}) IS NOT 1`)",
        "WHERE (${shown(table, 't', source)} >= ${source.ua}) IS NOT 1`)",
      ],
    ],
  },
  {
    name: 'first-part-acknowledged',
    what: 'a batch that is applied in parts is acknowledged after the first of them',
    edits: [['receive/parts.js', 'return this.#rows === this.document.count;', 'return this.#rows > 0;']],
  },
  {
    name: 'delete-before-ack',
    what: 'changes are dropped when they are sent, not when they are acknowledged',
    edits: [
      [
        'send/outbox.js',
        "this.#db.run('UPDATE main._peer_state SET shipped",
        "this.#advance(found);\n        this.#db.run('UPDATE main._peer_state SET shipped",
      ],
    ],
  },
  {
    name: 'ack-not-checked',
    focus: 'delivery',
    what: 'any answer with a status of 2xx counts as an acknowledgement',
    edits: [['send/verdict.js', 'return judgeAck(answer, said, batchId);', "return { kind: 'acked' };"]],
  },
  {
    name: 'a-web-page-refuses',
    focus: 'delivery',
    what: 'an answer with a status of 2xx that is no acknowledgement counts as a refusal',
    edits: [
      [
        'send/verdict.js',
        "{ kind: 'unreachable', reason: `HTTP ${answer.status} without",
        "{ kind: 'refused', reason: `HTTP ${answer.status} without",
      ],
    ],
  },
  {
    name: 'ack-deletes-everything',
    what: 'an acknowledgement drops all changes, those after it included',
    edits: [
      [
        'send/prune.js',
        'DELETE FROM main._changes WHERE change_id <= ?',
        'DELETE FROM main._changes WHERE change_id <= 9e15 + ?',
      ],
    ],
  },
  {
    name: 'prune-at-any-peer',
    what: 'a change is dropped when one of the peers has it',
    edits: [
      ['send/prune.js', 'coalesce(min(iif(stale = 1, NULL, ${acked}))', 'coalesce(max(iif(stale = 1, NULL, ${acked}))'],
    ],
  },
  {
    name: 'ids-begin-again',
    what: 'ids of changes begin again when there are none left',
    edits: [
      [
        'capture/internal-tables.js',
        '(change_id INTEGER PRIMARY KEY AUTOINCREMENT, op',
        '(change_id INTEGER PRIMARY KEY, op',
      ],
    ],
  },
  {
    name: 'flag-outside-transaction',
    what: 'the syncing flag is taken back after the commit',
    edits: [['receive/apply.js', 'this.#db.run(RESET_SYNCING);', 'queueMicrotask(() => this.#db.run(RESET_SYNCING));']],
  },
  {
    name: 'ack-before-commit',
    what: 'a node acknowledges, and applies a moment later',
    edits: [
      [
        'attach.js',
        'return this.#apply(body, { ...options, from: senderId(options.from) }, this.#company.sent(options.said));',
        `${LATER}this.#apply(body, options, this.#company.sent(options.said)));\n            return { changes: 1, ack: { applied: 1, ack: ${BATCH_ID} } };`,
      ],
    ],
  },
  {
    name: 'ack-not-flushed',
    focus: 'power',
    what: 'a node acknowledges what a power cut can take back',
    edits: [['receive/apply.js', '{ durable: true, ...', '{ ...']],
  },
  {
    name: 'shipped-not-flushed',
    focus: 'power',
    what: 'a node sends what a power cut can take back',
    edits: [
      [
        'send/outbox.js',
        'this.#readDurably(limit, previous, unnoted), { durable: true })',
        'this.#readDurably(limit, previous, unnoted))',
      ],
    ],
  },
  {
    name: 'page-of-another-place',
    what: 'a peer is sent what another got, though that begins behind what it has',
    edits: [['send/pages.js', 'page.after === after && fits(page)', 'page.after >= after && fits(page)']],
  },
  {
    name: 'dead-letter-on-connection-error',
    what: 'a peer that cannot be reached counts as one that refuses',
    edits: [
      [
        'send/shipper.js',
        "const failed = verdict.kind === 'unreachable' ? 'unreachable' : 'refused';",
        "const failed = 'refused';",
      ],
    ],
  },
  {
    name: 'no-local-advance',
    what: 'an update keeps the time that the application gave it, whatever the row had',
    edits: [
      ['capture/triggers.js', 'when: `${advances(table)} AND ${NOT_SYNCING}`', 'when: NOT_SYNCING'],
      ['capture/triggers.js', '        stampUpdate(table),\n', ''],
    ],
  },
  {
    name: 'insert-below-tombstone',
    what: 'an id that was deleted can be inserted again below its tombstone',
    edits: [['capture/triggers.js', '        stampInsert(table),\n', '']],
  },
  {
    name: 'replace-without-floor',
    what: 'REPLACE forgets the version of the row that it removes',
    edits: [['capture/triggers.js', '        noteBeforeInsert(table),\n', '']],
  },
  {
    name: 'rename-not-captured',
    what: 'a changed primary key leaves the old row on the peers',
    edits: [['capture/triggers.js', '        captureRename(table),\n', '']],
  },
  {
    name: 'stamp-not-written',
    what: 'a version that was given to a write never gets into its row',
    edits: [['capture/stamps.js', 'write(db, table);\n', "db.run('DELETE FROM main._stamps');\n"]],
  },
  {
    name: 'stamp-not-probed',
    what: 'a write does not ask whether its row was given a version that it does not show yet',
    edits: [
      [
        'capture/triggers.js',
        " OR ${reached(table, '_stamps')}) AND ${NOT_SYNCING}`,\n        body,",
        ') AND ${NOT_SYNCING}`,\n        body,',
      ],
    ],
  },
  {
    name: 'stamp-not-deleted-at',
    what: 'a row is deleted at the time that it shows, not at the version that it was given',
    edits: [
      [
        'capture/triggers.js',
        "const body = recordDelete(table, versionOf(table, 'OLD'));",
        "const body = recordDelete(table, presentIfInvalid(timeOf(table, 'OLD')));",
      ],
    ],
  },
  {
    name: 'nulls-dropped',
    what: 'columns that are NULL are left out of the captured row',
    edits: [['wire/row-json.js', 'return objects[0];', "return `json_patch('{}', ${objects[0]})`;"]],
  },
  {
    name: 'string-comparison-of-times',
    what: 'times are compared as text',
    edits: [
      [
        'receive/merge.js',
        '(${shown(table, target, source)} >= excluded.${updatedAt}) IS NOT 1',
        "(${shown(table, target, source)} || '' >= excluded.${updatedAt} || '') IS NOT 1",
      ],
    ],
  },
  {
    name: 'captured-while-applying',
    what: 'what was received is captured and sent on',
    edits: [['capture/versions.js', "key = 'syncing') IS NOT 1", "key = 'syncing') IS NOT 2"]],
  },
  {
    name: 'foreign-keys-enforced',
    focus: 'delivery',
    what: 'a child that comes before its parent is refused',
    edits: [['receive/apply.js', "foreignKeys: 'suspended'", '']],
  },
  {
    name: 'hub-drops-one-edge',
    focus: 'hubs',
    what: 'the hub serves all edges but one',
    edits: [
      [
        'hub/roster.js',
        'for (const { edge, loop } of this.links)\n',
        'for (const { edge, loop } of this.links.slice(1))\n',
      ],
    ],
  },
  {
    name: 'hub-acks-from-memory',
    focus: 'hubs',
    what: 'the hub acknowledges, and stores a moment later',
    edits: [
      [
        'hub/hub.js',
        'const { ack, letters, changes } = await this.#store.receive(body, { from: sender, said, plain, rights, origins });',
        `${LATER}this.#store.receive(body, { from: sender, said, plain, rights, origins }));\n            const { ack, letters, changes } = { ack: { applied: 1, ack: ${BATCH_ID} }, letters: [], changes: 1 };`,
      ],
    ],
  },
  {
    name: 'hub-ack-not-flushed',
    focus: 'power',
    what: 'the hub acknowledges what a power cut can take back',
    edits: [['hub/sqlite-receive.js', 'return stored;\n        }, { durable: true });', 'return stored;\n        });']],
  },
  {
    name: 'hub-keeps-what-came-last',
    focus: 'hubs',
    what: 'the hub lets the later arrival win a tie',
    edits: [
      [
        'hub/sqlite-merge.js',
        "'WHERE excluded.updated_at > t.updated_at OR",
        "'WHERE excluded.updated_at >= t.updated_at OR",
      ],
    ],
  },
  {
    name: 'snapshot-without-tombstones',
    focus: 'backlog',
    what: 'a new peer is not told what was deleted',
    edits: [['send/snapshot.js', ', hiddenOf(table), tombstonesOf(table)]', ', hiddenOf(table)]']],
  },
  {
    name: 'no-snapshot-on-return',
    focus: 'backlog',
    what: 'a peer that was away goes on where it was, without what is gone',
    edits: [['send/peers.js', 'if (missed)', 'if (false)']],
  },
  {
    name: 'bisection-loses-the-tail',
    focus: 'delivery',
    what: 'of a refused batch, the first half is sent and the second forgotten',
    edits: [
      [
        'send/isolate.js',
        'if (probed === false)\n            return split(search, refused.count);',
        'if (probed === false) {\n            await deliver(search, refused.count >> 1);\n            await search.acked(refused, { kind: "acked" });\n            return DONE;\n        }',
      ],
      [
        'send/isolate.js',
        'else if (refused.count > 1) {\n        return split(search, refused.count);',
        'else if (refused.count > 1) {\n        await deliver(search, refused.count >> 1);\n        await search.acked(refused, { kind: "acked" });\n        return DONE;',
      ],
    ],
  },
  {
    name: 'read-ahead-skips',
    focus: 'delivery',
    what: 'after a failed attempt, the loop goes on with the batch that it has read ahead',
    edits: [
      [
        'send/shipper.js',
        'await this.#rest.backOff(failures.unreachable + failures.refused);',
        'await this.#rest.backOff(failures.unreachable + failures.refused);\n            if (ahead) await this.#o.outbox.ack(current);',
      ],
    ],
  },
  {
    name: 'gap-not-noticed',
    focus: 'gaps',
    what: 'a table that was without its triggers gets them back, and that is all',
    edits: [
      ['capture/capture-record.js', "!isRenamed)\n        return 'gap';", "!isRenamed)\n        return 'intact';"],
    ],
  },
  {
    name: 'gap-not-asked-for',
    focus: 'gaps',
    what: 'after a gap in the capture all rows are sent, but no peer is asked for its own',
    edits: [['capture/registry.js', 'onUnseen(those(isNew), !isNew)', 'onUnseen(those(isNew), false)']],
  },
  {
    name: 'foreign-changes-dropped',
    focus: 'gaps',
    what: 'a change that somebody else has recorded, without a table, is passed over',
    edits: [
      [
        'send/outbox.js',
        'adoptForeign(this.#db, this.#registry.list(), { after, upTo: found.last });',
        "this.#db.run('DELETE FROM _changes WHERE table_name IS NULL');",
      ],
    ],
  },
  {
    name: 'other-attachment-forgotten',
    focus: 'backlog',
    what: 'a change is dropped when the peers of one process have it, and another process has others',
    edits: [['send/prune.js', 'WHERE ${own} OR ${OF_ANY_ATTACHMENT}', 'WHERE ${own}']],
  },
  {
    name: 'stale-peer-not-seeded',
    focus: 'backlog',
    what: 'a stale peer goes on with the changes that are left',
    edits: [
      [
        'send/peers.js',
        'tail_from = iif(stale = 1, CAST(? AS INTEGER), coalesce(tail_from, last_acked)), stale = 0, ',
        'tail_from = iif(stale = 1, NULL, coalesce(tail_from, last_acked)), stale = 0, shipped = coalesce(shipped, ?), ',
      ],
    ],
  },
  {
    name: 'removed-peer-holds-back',
    focus: 'backlog',
    what: 'changes are kept for a peer that was removed',
    edits: [['send/prune.js', 'WHERE ${own} OR ${OF_ANY_ATTACHMENT}', 'WHERE true OR ${own} OR ${OF_ANY_ATTACHMENT}']],
  },
  {
    name: 'paused-peer-pruned-past',
    focus: 'backlog',
    what: 'nothing is kept for a peer that is paused, and nobody notes what it lacks',
    edits: [
      [
        'send/prune.js',
        'coalesce(min(iif(stale = 1, NULL, ${acked}))',
        'coalesce(min(iif(paused = 1, NULL, ${acked}))',
      ],
    ],
  },
  {
    name: 'unique-displaced-row-lost',
    focus: 'uniques',
    what: 'a row that has to make room for a stronger one is deleted, not hidden',
    edits: [['receive/unique.js', '        this.#hide(table, row);\n', '']],
  },
  {
    name: 'future-released-in-silence',
    what: 'a change that had to wait for its time is let in and told to nobody',
    edits: [['receive/careful.js', 'announceAll(this.#db, group, isPlaced(work));', ';']],
  },
  {
    name: 'future-clamped',
    what: 'a time that is far ahead is lowered to the greatest that is taken',
    edits: [
      [
        'receive/stage.js',
        'for (const { idx, ua: version, grp } of found) {',
        "this.#db.run(`UPDATE ${STAGE} SET ua = ?, r = jsonb_set(r, '$.updated_at', CAST(? AS INTEGER)) " +
          'WHERE grp > 0 AND ua > ?`, latest, latest, latest);\n        return;\n        ' +
          'for (const { idx, ua: version, grp } of found) {',
      ],
    ],
  },
  {
    name: 'future-dropped',
    what: 'a change that is far ahead is acknowledged and forgotten',
    edits: [
      [
        'receive/stage.js',
        "refused.set(idx, { code: 'future-stamp', reason: timeLimit.reasonFor(version), version });",
        '',
      ],
    ],
  },
  {
    name: 'hub-forgets-the-future',
    what: 'a hub whose letter has come to its time throws it away',
    edits: [
      [
        'hub/sqlite-store.js',
        'const { ack } = await this.receive(body, { from: undefined, plain: false, again: true });',
        'const ack = {};',
      ],
    ],
  },
  {
    name: 'old-name-not-understood',
    focus: 'schemas',
    what: 'a column that was renamed here is not known by the name that it still has elsewhere',
    edits: [['capture/names.js', 'table.aliases.set(fold(alias), column);', ';']],
  },
  {
    name: 'tombstones-left-behind',
    focus: 'schemas',
    what: 'a table that was renamed leaves its tombstones under its old name',
    edits: [['migrate/internal-names.js', "['_tombstones', '_stamps',", "['_stamps',"]],
  },
  {
    name: 'hidden-not-settled-after-local-write',
    focus: 'uniques',
    what: 'a hidden row stays so when the application has set its value free',
    edits: [['attach.js', 'of this.#applier.settleUnique())', 'of [])']],
  },
  {
    name: 'letter-fills-a-losing-version',
    focus: 'schemas',
    what: 'what is kept of a column that is not here yet may be of a version that has lost',
    edits: [
      ['receive/report.js', '`(EXISTS (SELECT 1 FROM ${table.target}', '`(1 OR EXISTS (SELECT 1 FROM ${table.target}'],
    ],
  },
  {
    name: 'default-taken-for-written',
    focus: 'migration:-default',
    what: 'what is kept of a column that is not here yet is not filled in where the column has its default',
    edits: [
      [
        'receive/fill-in.js',
        'f.time AND t.${name} COLLATE BINARY IS (${column.fallback})`',
        'f.time AND t.${name} IS NULL`',
      ],
    ],
  },
  {
    name: 'dropped-is-missed',
    focus: 'migration:drop',
    what: 'a column that was dropped is missed where others still send it',
    edits: [['receive/plan.js', 'if (!table.dropped.has(fold(key)))', 'if (true)']],
  },
  {
    name: 'hidden-not-in-snapshot',
    focus: 'uniques',
    what: 'a new peer is not sent the rows that a stronger one hides',
    edits: [['send/snapshot.js', ', hiddenOf(table), tombstonesOf(table)]', ', tombstonesOf(table)]']],
  },
  {
    name: 'tie-not-decided-again',
    focus: 'schemas',
    what: 'of two versions of one time, which one won without a column is not asked again when the column is there',
    edits: [['receive/fill-in.js', 'if (tied.length > 0)', 'if (false)']],
  },
  {
    name: 'migrated-rows-not-recorded',
    focus: 'schemas',
    what: 'rows that a migration has changed are not sent',
    edits: [['migrate/migrate.js', 'leftOut.push(...before.recordChanges(pair));', '']],
  },
  {
    name: 'answer-of-the-younger',
    focus: 'delivery',
    what: 'of two batches under way, the acknowledgement of the second counts for the first',
    edits: [
      [
        'send/shipper.js',
        'const verdict = await sent.verdict;',
        'const verdict = await (second ? second.verdict : sent.verdict);',
      ],
    ],
  },
  {
    name: 'gap-asked-too-early',
    focus: 'gaps',
    what: 'a peer is asked for its rows before it has everything that was captured before the gap',
    edits: [
      [
        'send/asking.js',
        'previous?.asks === undefined && hasAllUpTo(state, asksAfter)',
        'previous?.asks === undefined && !state.stale && state.tailFrom === null',
      ],
    ],
  },
  {
    name: 'second-gap-asked-as-the-first',
    focus: 'gaps',
    what: 'a table has another gap before a peer was asked for it, and the peer is asked when it has what there was at the first',
    edits: [
      ['send/resend.js', 'asks_after = CAST(? AS INTEGER)', 'asks_after = coalesce(asks_after, CAST(? AS INTEGER))'],
    ],
  },
  {
    name: 'unique-arrival-wins',
    focus: 'uniques',
    what: 'of two rows with one UNIQUE value, the one that was there first is visible',
    edits: [['receive/unique.js', 'rivals?.find(({ weaker }) => weaker !== 1)', 'rivals?.find(() => true)']],
  },
  {
    name: 'compare-without-recheck',
    focus: 'comparison',
    what: 'what two sides have not the same of at the first look counts as different',
    edits: [
      ['compare/verify.js', "return isWaiting ? 'pending' : 'differs';", "return 'differs';"],
      ['compare/verify.js', 'if (hasReached(now.here, before) && hasReached(now.there, before))', 'if (false)'],
    ],
  },
  {
    name: 'answer-not-bound-to-its-request',
    focus: 'keys',
    what: 'a signed answer to another request is taken for the answer to this one',
    edits: [['auth/answers.js', 'return ofRequest;', "return ':AAAA:';"]],
  },
  {
    name: 'digest-not-compared',
    focus: 'keys',
    what: 'the body of a signed answer is not looked at',
    edits: [
      ['auth/answers.js', 'if (!digestFits(answer.header(DIGEST_HEADER)?.trim(), answer.body)) {', 'if (false) {'],
    ],
  },
  {
    name: 'hub-forgets-what-it-was-asked',
    focus: 'hubs',
    what: 'a hub that dies forgets which tables it was asked for and has not sent yet',
    edits: [['hub/hub.js', 'askedFor: await store.askedFor(),', 'askedFor: [],']],
  },
  {
    name: 'claim-not-kept',
    focus: 'lives',
    what: 'what a database that was just started has said is forgotten before it was asked',
    edits: [['identity/identity.js', 'noteClaim(this.#db, said, known);', ';']],
  },
  {
    name: 'claim-not-told',
    focus: 'lives',
    what: 'a database is not told what was said in its name',
    edits: [['identity/later.js', 'said.claims?.some(isOurs) === true ||', '']],
  },
  {
    name: 'ends-not-known',
    focus: 'lives',
    what: 'a backup that is started twice has counted as far as it had before',
    edits: [
      ['identity/judge.js', 'if (ended !== undefined)', 'if (false)'],
      ['identity/judge.js', '[own.boot, ...own.ended.keys()]', '[own.boot]'],
    ],
  },
  {
    name: 'replaced-not-passed-on',
    focus: 'lives',
    what: 'what a database had brought is not passed on when another one is in its place',
    edits: [['send/company.js', 'compareAllPeers(this.#db, now, [peer]);', '']],
  },
  {
    name: 'strangers-not-passed-on',
    focus: 'lives',
    what: 'what came from a database that is at no URL is not passed on',
    edits: [['send/company.js', 'passOnOfStrangers(this.#db, now);', '']],
  },
  {
    name: 'left-peer-not-noted',
    focus: 'lives',
    what: 'that a peer was taken out is not noticed where a crash has left the attach from before',
    edits: [['send/roster.js', 'if (left)\n                this.noteRemoved();', '']],
  },
  {
    name: 'tick-not-bumped-on-ship',
    focus: 'lives',
    what: 'what was sent is not counted',
    edits: [['send/outbox.js', 'this.#company.tick();', '']],
  },
  {
    name: 'given-ids-not-noted',
    focus: 'halfway',
    what: 'that an id was given is left to AUTOINCREMENT, which does not note it where a statement fails in the middle',
    edits: [
      ['send/outbox.js', 'noteGiven(this.#db, last);', ''],
      ['send/prune.js', 'noteGiven(db, upTo);', ''],
    ],
  },
  {
    name: 'tabular-value-in-another-column',
    focus: 'delivery',
    what: 'a value of a row that is an array goes into the column beside its own',
    edits: [
      ['receive/merge.js', 'of.order.indexOf(column)', "(of.order.indexOf(column) + (column.name === 'name' ? 1 : 0))"],
    ],
  },
];

/**
 * No schedule notices these, each for its reason, and the test that `by` names does: it was red with the bug planted in the
 * source. `npm run sim:mutants -- --only <name>` runs one of them.
 */
export const NOTICED_BY_A_TEST = [
  // It is made before any transaction, so that none takes it back.
  {
    name: 'mirror-not-rolled-back',
    focus: 'uniques',
    what: 'the table in which hidden rows are merged is taken to be there after the transaction that made it failed',
    by: 'test/receive/mirror.test.ts',
    edits: [['receive/unique.js', 'if (known?.stands())', 'if (known)']],
  },
  // A peer that was away is asked who it is before anything is sent, so its first acknowledgement is not of an older walk.
  {
    name: 'generation-ignored',
    focus: 'lives',
    what: 'an acknowledgement counts, whoever gives it',
    by: 'test/send/generation.test.ts',
    edits: [
      ['send/company.js', 'return databaseAt(this.#db, peer).run === current;', 'return true;'],
      ['send/company.js', 'if (run !== undefined && run !== current)\n            return false;', ''],
      ['send/peers.js', 'WHERE peer_url = ? AND snapshot_run = ?', 'WHERE peer_url = ? AND ? >= 0'],
    ],
  },
  // So late an answer is rare, and the peer that it is from mostly has what it speaks of.
  {
    name: 'uncounted-passed-over',
    focus: 'lives',
    what: 'where an acknowledgement does not count, that of the batch behind it does',
    by: 'test/send/uncounted.test.ts',
    edits: [['send/shipper.js', 'if (delivered?.counts === false) {', 'if (false) {']],
  },
  {
    name: 'resend-generation-ignored',
    focus: 'gaps',
    what: 'the acknowledgement of a page of an earlier walk moves the present one on',
    by: 'test/send/generation.test.ts',
    edits: [['send/peers.js', 'WHERE peer_url = ? AND snapshot_run = ?', 'WHERE peer_url = ? AND ? IS NOT NULL']],
  },
  // The database itself finds out by what it is told of itself, at the latest.
  {
    name: 't-instead-of-t0',
    focus: 'lives',
    what: 'a database tells its latest tick as the one at which it began',
    by: 'test/identity/plain.test.ts',
    edits: [
      [
        'identity/identity.js',
        'boot,\n            t0,\n            tick,\n            seal',
        'boot,\n            t0: tick,\n            tick,\n            seal',
      ],
    ],
  },
  // A node must be put back between two letters while nobody gets to it, and be compared before it has sent anything.
  {
    name: 'delivered-to-a-name',
    focus: 'losses',
    what: 'what was delivered to a database counts for an earlier state of it, or for another one of its name',
    by: 'test/tombstones/put-back.test.ts',
    edits: [
      ['send/comparisons.js', 'this.#o.company.another(peer, other.said) === undefined', 'true'],
      ['hub/comparisons.js', 'await this.#store.company.another(url, other.said)', 'undefined'],
    ],
  },
  {
    name: 'earlier-state-believed',
    focus: 'losses',
    what: 'what a backup that was put back says of its rows is believed before it is known to be one',
    by: 'test/tombstones/put-back.test.ts',
    edits: [
      ['send/company.js', 'isEarlierState(this.#identity.look(said))', 'false'],
      ['hub/sqlite-company.js', 'isEarlierState(this.#identity.look(said))', 'false'],
    ],
  },
  // It takes three nodes, one that is away and tells one of the others alone, and a disk that is lost before that one notices.
  {
    name: 'delivered-by-a-name',
    focus: 'losses',
    what: 'a node that was set up again under its name is taken to have delivered what the one before it had',
    by: 'test/tombstones/set-up-again.test.ts',
    edits: [['send/company.js', ' && isUnawaitedOne(this.#db, id, inc)', '']],
  },
  // Whoever begins to send to a peer asks it first by now, so that it hears of the attach before by another way.
  {
    name: 'attach-before-not-told',
    focus: 'lives',
    what: 'what was heard of the attach before is forgotten with the next one',
    by: 'test/identity/claim.test.ts',
    edits: [['identity/claim.js', 'isNext ? added(left, { ...known, seal: known.seal ?? undefined }) : left', 'left']],
  },
];
