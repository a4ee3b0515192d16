'use strict'
// Group members with kafkajs: commands and events are those of ../python/host.py.

const readline = require('node:readline')
const { Kafka, logLevel, AssignerProtocol } = require('kafkajs')
const { security } = require('./security.js')

const bootstrap = process.argv[2]

// kafkajs comes with one assignor, under a name that no other client has: these have the names and the ways of Kafka's.
const dealers = {
  range(count, members) {
    const [each, more] = [Math.floor(count / members), count % members]
    const first = (m) => m * each + Math.min(m, more)
    return Array.from({ length: members }, (_, m) => Array.from({ length: first(m + 1) - first(m) }, (_, i) => first(m) + i))
  },
  roundrobin(count, members) {
    const numbers = Array.from({ length: count }, (_, p) => p)
    return Array.from({ length: members }, (_, m) => numbers.filter((p) => p % members === m))
  },
}

const assignor = (name) => ({ cluster }) => ({
  name,
  version: 0,
  async assign({ members, topics }) {
    const sorted = members.map((each) => each.memberId).sort()
    const dealt = topics.map((topic) => [topic, dealers[name](cluster.findTopicPartitionMetadata(topic).length, sorted.length)])
    return sorted.map((memberId, m) => {
      const assignment = Object.fromEntries(dealt.map(([topic, parts]) => [topic, parts[m]]))
      return { memberId, memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment }) }
    })
  },
  protocol: ({ topics }) => ({ name, metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics }) }),
})

class Member {
  constructor(wanted) {
    this.wanted = wanted
    this.generation = -1
    this.moving = Promise.resolve()
    const logCreator = () => ({ log }) => this.read(log)
    const kafka = new Kafka({ clientId: wanted.member, brokers: [bootstrap], ...security, logLevel: logLevel.DEBUG, logCreator, retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 50 } })
    this.consumer = kafka.consumer({
      groupId: wanted.group,
      partitionAssigners: [assignor(wanted.assignor)],
      sessionTimeout: wanted.session_ms,
      rebalanceTimeout: wanted.rebalance_ms,
      heartbeatInterval: 200,
      maxWaitTimeInMs: 100,
      retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 50 },
    })
    this.consumer.on('consumer.crash', ({ payload }) => {
      if (!payload.restart) this.emit('failed', { code: payload.error.code ?? -1, message: String(payload.error) })
    })
  }

  emit(event, about) {
    process.stdout.write(JSON.stringify({ member: this.wanted.member, event, ...about }) + '\n')
  }

  // The generation is only in what kafkajs writes to its log.
  read(log) {
    if (log.message !== 'Received assignment') return
    this.generation = log.generationId
    const owned = log.memberAssignment[this.wanted.topic] || []
    this.emit('assigned', { generation: this.generation, id: log.memberId, owned: [...owned].sort((a, b) => a - b) })
  }

  async join() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.wanted.topic], fromBeginning: true })
    await this.consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: (given) => this.take(given) })
  }

  async take({ batch, resolveOffset, commitOffsetsIfNecessary, isRunning, isStale }) {
    await this.moving
    if (!isRunning() || isStale()) return
    const generation = this.generation
    const offsets = batch.messages.map((each) => Number(each.offset))
    const taken = []
    for (const offset of offsets) {
      const last = taken[taken.length - 1]
      if (last && last[2] === offset - 1) last[2] = offset
      else taken.push([batch.partition, offset, offset])
    }
    this.emit('records', { generation, runs: taken })
    try {
      const next = String(offsets[offsets.length - 1] + 1)
      await commitOffsetsIfNecessary({ topics: [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset: next }] }] })
    } catch (error) {
      this.emit('commit_failed', { generation, runs: taken, code: error.code ?? -1 })
      throw error // kafkajs joins again
    }
    this.emit('committed', { generation, runs: taken })
    resolveOffset(batch.lastOffset())
  }

  stall() {
    this.moving = new Promise((resolve) => { this.resume = resolve })
  }

  async leave() {
    if (this.resume) this.resume()
    await this.consumer.disconnect()
    this.emit('left', {})
  }
}

async function main() {
  const members = new Map()
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const command = JSON.parse(line)
    if (command.op === 'join') {
      const member = new Member(command)
      members.set(command.member, member)
      member.join().catch((error) => member.emit('failed', { code: error.code ?? -1, message: String(error) }))
    } else if (command.op === 'leave') {
      const member = members.get(command.member)
      members.delete(command.member)
      member.leave().catch((error) => member.emit('failed', { code: error.code ?? -1, message: String(error) }))
    } else {
      members.get(command.member)[command.op]()
    }
  }
  await Promise.allSettled([...members.values()].map((member) => member.leave()))
  process.exit(0)
}

main()
