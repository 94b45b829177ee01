/** `rowcast/hub`: the relay between any number of nodes, for your own program. */
export type { EdgeHealth, HubHealth } from './health.ts';
export { createHub, type Hub, type HubConfig, type HubEventName, type HubSettings } from './hub.ts';
export type { EdgeStatus, Edges } from './roster.ts';
