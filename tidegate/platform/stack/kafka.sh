#!/bin/sh
# Run Kafka (KRaft, one node) in a container with Java and Kafka's jars in /opt/kafka/libs, or tell its health.
# Two listeners: 9092 for the world outside (ADVERTISED, default localhost:9092), 19092 for other containers (INTERNAL).
set -eu
jars='/opt/kafka/libs/*'

if [ "${1:-run}" = health ]; then
  nc -z localhost 9092 2>/dev/null || exec bash -c 'exec 3<>/dev/tcp/localhost/9092'
  exit 0
fi

folder=/tmp/kafka
mkdir -p "$folder"
cat > "$folder/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=OUTSIDE://:9092,INSIDE://:19092,CONTROLLER://localhost:9093
advertised.listeners=OUTSIDE://${ADVERTISED:-localhost:9092},INSIDE://${INTERNAL:-localhost:19092}
listener.security.protocol.map=OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=INSIDE
log.dirs=${DATA:-$folder/data}
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
cat > "$folder/log4j2.properties" <<'LOGGING'
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
LOGGING

java -Xmx128m -cp "$jars" kafka.tools.StorageTool format --ignore-formatted -t TidegateContainerXXXXQ -c "$folder/server.properties"
exec java "-Xmx${HEAP:-1g}" -XX:+UseSerialGC "-Dlog4j2.configurationFile=$folder/log4j2.properties" -cp "$jars" kafka.Kafka "$folder/server.properties"
