/** By which a node says of a version that it was written here. */
export const SELF = 'self';
