/**
 * Loaded into every node before its program. When the process that started the node is gone, however it went, the channel
 * between them closes, and the node must not outlive it.
 */
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
// The listener alone would keep the node from ending by itself.
process.channel?.unref();
