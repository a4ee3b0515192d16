'use strict'
// TLS of all clients: with the authority in the file that INTEROP_TLS_CA names, if the variable is set.

const { readFileSync } = require('node:fs')

const { INTEROP_TLS_CA: authority } = process.env

exports.security = authority ? { ssl: { ca: [readFileSync(authority)] } } : {}
