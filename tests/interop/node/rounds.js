'use strict'
// Rounds with one client after another, each with settings of its own: see tests/harness/clients/rounds.py.

const { readFileSync } = require('node:fs')
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

function settings({ bootstrap, ca, keystore, mechanism, user: username, password, token: value }) {
  const own = keystore ? { cert: readFileSync(keystore), key: readFileSync(keystore) } : {}
  const login = mechanism === 'OAUTHBEARER' ? { oauthBearerProvider: async () => ({ value }) } : { username, password }
  return {
    brokers: [bootstrap],
    ...(ca ? { ssl: { ca: [readFileSync(ca)], ...own } } : {}),
    ...(mechanism ? { sasl: { mechanism: mechanism.toLowerCase(), ...login } } : {}),
    logLevel: logLevel.NOTHING,
  }
}

async function write(kafka, topic, values) {
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const aborted = await producer.transaction()
  await aborted.send({ topic, messages: [{ value: 'aborted' }] })
  await aborted.abort()
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: values.map((value) => ({ value })) })
  await transaction.commit()
  await producer.disconnect()
}

async function read(kafka, topic, count) {
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const got = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    const eachMessage = async ({ message }) => {
      got.push(message.value.toString())
      if (got.length === count) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect() // which commits
  return got
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const { topic, values, ...way } = JSON.parse(line)
    let answer
    try {
      const kafka = new Kafka(settings(way))
      await write(kafka, topic, values)
      answer = { result: await read(kafka, topic, values.length) }
    } catch (error) {
      answer = { error: -1, message: String(error.message || error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
