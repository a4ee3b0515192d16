'use strict'
// Answers one JSON request a line from standard input with one JSON line, through kafkajs.

const readline = require('node:readline')
const { Kafka, CompressionTypes, ConfigResourceTypes, Partitioners, logLevel } = require('kafkajs')
const { security } = require('./security.js')

const kafka = new Kafka({
  clientId: 'interop',
  brokers: [process.argv[2]],
  ...security,
  logLevel: logLevel.NOTHING,
  retry: { retries: 2 },
  requestTimeout: 30000,
})
const admin = kafka.admin()

const unpack = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const pack = (value) => (value === null || value === undefined ? null : value.toString('base64'))
const byPartition = (entries) => Object.fromEntries(entries)

async function produce({ topic, codec, acks, idempotent, records }) {
  const byDefault = Partitioners.DefaultPartitioner()
  const createPartitioner = () => (about) => about.message.partition ?? byDefault(about)
  const producer = kafka.producer({ idempotent, createPartitioner })
  await producer.connect()
  try {
    const messages = records.map((r) => {
      const headers = {} // a header that comes twice is an array here
      for (const [name, value] of r.headers) {
        headers[name] = name in headers ? [].concat(headers[name], [unpack(value)]) : unpack(value)
      }
      const message = { key: unpack(r.key), value: unpack(r.value), headers }
      if (r.partition !== null) message.partition = r.partition
      if (r.timestamp !== null) message.timestamp = String(r.timestamp)
      return message
    })
    const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]
    const told = await producer.send({ topic, messages, acks, compression })
    // One answer a partition: its records follow each other from the base offset, in the order they were given.
    const next = byPartition((told || []).map((each) => [each.partition, Number(each.baseOffset)]))
    return records.map((r) => (r.partition === null || acks === 0 ? [-1, -1] : [r.partition, next[r.partition]++]))
  } finally {
    await producer.disconnect()
  }
}

async function read(config, topic, isEnough) {
  const consumer = kafka.consumer({ maxWaitTimeInMs: 100, retry: { retries: 10 }, ...config })
  const got = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  return {
    consumer,
    got: await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      const eachBatch = async ({ batch }) => {
        for (const each of batch.messages) {
          if (isEnough(got)) break
          const headers = Object.entries(each.headers).map(([name, value]) => [name, pack(value)])
          const place = { partition: batch.partition, offset: Number(each.offset), timestamp: Number(each.timestamp) }
          got.push({ ...place, headers, key: pack(each.key), value: pack(each.value) })
        }
        if (isEnough(got)) resolve(got)
      }
      consumer.run({ autoCommit: false, eachBatch }).catch(reject)
    }),
  }
}

const transactional = new Map() // name -> { producer, open: transaction or undefined }

async function finish({ name, outcome }) {
  const kept = transactional.get(name)
  const ending = kept.open
  kept.open = undefined
  await (outcome === 'commit' ? ending.commit() : ending.abort())
  return null
}

// kafkajs reads only as a member of a group, so each reading is a group of its own.
const transactions = {
  async read_until({ topic, partitions, last, committed }) {
    const groupId = `reads-${topic}-${Math.random()}`
    const seen = (got) => new Set(got.filter((each) => each.value === last).map((each) => each.partition)).size
    const { consumer, got } = await read({ groupId, readUncommitted: !committed }, topic, (sofar) => seen(sofar) === partitions.length)
    await consumer.disconnect()
    return got
  },
  async open_transactional({ name, timeout_ms: transactionTimeout }) {
    const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1, transactionTimeout })
    await producer.connect()
    transactional.set(name, { producer, open: await producer.transaction() }) // which asks for the producer id
    return null
  },
  async transact({ name, topic, records, outcome }) {
    const kept = transactional.get(name)
    kept.open = kept.open || (await kept.producer.transaction())
    const messages = records.map((r) => ({ key: unpack(r.key), value: unpack(r.value), partition: r.partition ?? undefined }))
    await kept.open.send({ topic, messages })
    return outcome === 'open' ? null : finish({ name, outcome })
  },
  finish,
  async close_transactional({ name }) {
    await transactional.get(name).producer.disconnect()
    transactional.delete(name)
    return null
  },
  async copy_in_transaction({ name, group, topic, target, total, outcome }) {
    const { consumer, got } = await read({ groupId: group, readUncommitted: false }, topic, (sofar) => sofar.length === total)
    const kept = transactional.get(name)
    const transaction = kept.open || (await kept.producer.transaction())
    kept.open = undefined
    const messages = got.map((each) => ({ partition: each.partition, value: unpack(each.value).toString('latin1').toUpperCase() }))
    await transaction.send({ topic: target, messages })
    const ends = new Map()
    for (const each of got) ends.set(each.partition, Math.max(each.offset + 1, ends.get(each.partition) || 0))
    const partitions = [...ends].map(([partition, offset]) => ({ partition, offset: String(offset) }))
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
    await (outcome === 'commit' ? transaction.commit() : transaction.abort())
    await consumer.disconnect()
    return got
  },
}

async function configs(type, name) {
  const told = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type, name }] })
  return byPartition(told.resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]))
}

const answers = {
  produce,
  ...transactions,
  async offsets_for_times({ topic, times }) {
    const found = {}
    for (const [partition, at] of Object.entries(times)) {
      const all = await admin.fetchTopicOffsetsByTimestamp(topic, at)
      // Where no record is that young, kafkajs gives the end of the partition: compare with what the end is.
      const ends = await admin.fetchTopicOffsets(topic)
      const offset = all.find((each) => each.partition === Number(partition)).offset
      const end = ends.find((each) => each.partition === Number(partition)).high
      found[partition] = offset === end ? null : Number(offset)
    }
    return found
  },
  async watermarks({ topic }) {
    const all = await admin.fetchTopicOffsets(topic)
    return byPartition(all.map((each) => [each.partition, [Number(each.low), Number(each.high)]]))
  },
  async cluster() {
    const told = await admin.describeCluster()
    const nodes = told.brokers.map((each) => [each.nodeId, each.host, each.port])
    return { cluster_id: told.clusterId, controller: told.controller, nodes }
  },
  async topic_names() {
    return admin.listTopics()
  },
  async partitions_of({ topic }) {
    const told = await admin.fetchTopicMetadata({ topics: [topic] })
    return byPartition(told.topics[0].partitions.map((each) => [each.partitionId, [each.leader, each.replicas, each.isr]]))
  },
  async create_topic({ topic, partitions, configs: wanted, validate_only: validateOnly }) {
    const configEntries = Object.entries(wanted).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }]
    if (!(await admin.createTopics({ topics, validateOnly, waitForLeaders: !validateOnly }))) {
      throw Object.assign(new Error(`${topic} exists`), { code: 36 }) // kafkajs says only false here
    }
    return null
  },
  async add_partitions({ topic, total }) {
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
    return null
  },
  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] })
    return null
  },
  async topic_configs({ topic }) {
    return configs(ConfigResourceTypes.TOPIC, topic)
  },
  async broker_configs({ broker }) {
    return configs(ConfigResourceTypes.BROKER, broker)
  },
  async set_topic_configs({ topic, configs: wanted }) {
    const configEntries = Object.entries(wanted).map(([name, value]) => ({ name, value }))
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }]
    await admin.alterConfigs({ validateOnly: false, resources })
    return null
  },
  async delete_records({ topic, before }) {
    const partitions = Object.entries(before).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) }))
    await admin.fetchTopicOffsets(topic) // or kafkajs does not know the leaders yet
    await admin.deleteTopicRecords({ topic, partitions })
    const all = await admin.fetchTopicOffsets(topic)
    return byPartition(all.filter((each) => each.partition in before).map((each) => [each.partition, Number(each.low)]))
  },
}

function inside(error) {
  const failed = (error.partitions || []).find((each) => each.error)
  return error.cause || (error.errors && error.errors[0]) || (failed && failed.error) || error.originalError
}

function codeOf(error) {
  for (let each = error; each; each = inside(each)) {
    if (typeof each.code === 'number') return each.code
  }
  return -1
}

async function main() {
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const request = JSON.parse(line)
    let answer
    try {
      answer = { result: (await answers[request.op](request)) ?? null }
    } catch (error) {
      answer = { error: codeOf(error), message: String(error.message || error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  await admin.disconnect()
  process.exit(0) // producers that nobody closed would keep it running
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
