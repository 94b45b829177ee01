/** `rowcast/metrics`: a node's or a hub's figures for Prometheus; give them to `createHandler` or `createListener`. */
export { collectMetrics, type Metrics, type Observable } from './metrics.ts';
