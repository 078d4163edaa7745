package state

// Stores and UsualStore let a test register a store of its own.
var Stores = stores

const UsualStore = usualStore
