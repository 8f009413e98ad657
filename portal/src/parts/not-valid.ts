/** What is said of figures of speed that are not the engine's. */
export const NOT_VALID = "Not valid: the client was too slow, so these are not the engine's times and rates";
