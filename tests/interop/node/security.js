'use strict'
// TLS of all clients: with the authority in the file that INTEROP_TLS_CA names, and with the certificate and key in the
// file that INTEROP_TLS_KEYSTORE names, if the variables are set.

const { readFileSync } = require('node:fs')

const { INTEROP_TLS_CA: authority, INTEROP_TLS_KEYSTORE: store } = process.env
const own = store ? { cert: readFileSync(store), key: readFileSync(store) } : {}

exports.security = authority ? { ssl: { ca: [readFileSync(authority)], ...own } } : {}
