import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** kafka-clients' Admin: what operators' tools are made of. */
final class AdminScenarios {
    private AdminScenarios() {}

    static void register(Map<String, Scenarios.Body> known) {
        known.put("topics_are_created_described_deleted", AdminScenarios::topics);
        known.put("impossible_topics_are_refused", AdminScenarios::impossibleTopics);
        known.put("a_topic_is_described_in_pages", AdminScenarios::pages);
        known.put("partitions_are_added", AdminScenarios::partitions);
        known.put("topic_settings_are_altered", AdminScenarios::topicSettings);
        known.put("group_settings_are_altered", AdminScenarios::groupSettings);
        known.put("records_are_deleted", AdminScenarios::deleteRecords);
        known.put("offsets_are_listed_by_spec", AdminScenarios::listOffsets);
        known.put("log_dirs_are_described", AdminScenarios::logDirs);
        known.put("the_cluster_is_described", AdminScenarios::cluster);
        known.put("producers_are_described", AdminScenarios::producers);
        known.put("groups_are_listed_and_described", AdminScenarios::groups);
        known.put("group_offsets_are_altered_and_deleted", AdminScenarios::groupOffsets);
        known.put("groups_are_deleted", AdminScenarios::deleteGroups);
    }

    private static void topics(Kit kit) throws Exception {
        Admin admin = kit.admin();
        NewTopic made = new NewTopic(kit.topic, Optional.of(3), Optional.empty())
            .configs(Map.of("retention.ms", "1000"));
        var created = admin.createTopics(List.of(made));
        Uuid id = Kit.await(created.topicId(kit.topic));
        Kit.equal(3, Kit.await(created.numPartitions(kit.topic)), "partitions");
        Kit.equal("1000", Kit.await(created.config(kit.topic)).get("retention.ms").value(), "setting");
        Kit.until("it is listed", () -> Kit.await(admin.listTopics().names()).contains(kit.topic));
        TopicDescription byName =
            Kit.await(admin.describeTopics(List.of(kit.topic)).allTopicNames()).get(kit.topic);
        Kit.equal(id, byName.topicId(), "id");
        Kit.equal(3, byName.partitions().size(), "partitions");
        Kit.equal((int) Kit.COPIES, byName.partitions().get(0).isr().size(), "isr");
        TopicDescription byId = Kit.await(
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id);
        Kit.equal(kit.topic, byId.name(), "name by id");
        Kit.await(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        Kit.until("it is gone", () -> !Kit.await(admin.listTopics().names()).contains(kit.topic));
        Kit.refused(UnknownTopicIdException.class,
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
    }

    private static KafkaFuture<Void> create(Kit kit, NewTopic topic) {
        return kit.admin().createTopics(List.of(topic)).all();
    }

    private static void impossibleTopics(Kit kit) throws Exception {
        short one = 1;
        kit.create(1);
        Kit.refused(TopicExistsException.class, create(kit, new NewTopic(kit.topic, 1, one)));
        Kit.refused(InvalidTopicException.class, create(kit, new NewTopic("a b", 1, one)));
        Kit.refused(InvalidPartitionsException.class, create(kit, new NewTopic("none", 0, one)));
        Kit.refused(InvalidReplicationFactorException.class,
            create(kit, new NewTopic("copies", 1, (short) 9)));
        Kit.refused(InvalidConfigurationException.class,
            create(kit, new NewTopic("s", 1, one).configs(Map.of("segment.bytes", "ten"))));
        Kit.refused(UnknownTopicOrPartitionException.class,
            kit.admin().describeTopics(List.of("never-made")).allTopicNames());
    }

    /** DescribeTopicPartitions with a small page (KIP-966). */
    private static void pages(Kit kit) throws Exception {
        kit.create(7);
        TopicDescription described = Kit.onceKnown(() -> kit.admin().describeTopics(
            List.of(kit.topic),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(2)).allTopicNames())
            .get(kit.topic);
        List<Integer> numbers = new ArrayList<>();
        described.partitions().forEach(partition -> numbers.add(partition.partition()));
        Kit.equal(List.of(0, 1, 2, 3, 4, 5, 6), numbers, "partitions");
    }

    private static void partitions(Kit kit) throws Exception {
        kit.create(1);
        Kit.done(
            () -> kit.admin().createPartitions(Map.of(kit.topic, NewPartitions.increaseTo(3))).all(),
            InvalidPartitionsException.class);
        Kit.until("three partitions", () -> Kit.await(
            kit.admin().describeTopics(List.of(kit.topic)).allTopicNames())
            .get(kit.topic).partitions().size() == 3);
        Kit.refused(InvalidPartitionsException.class,
            kit.admin().createPartitions(Map.of(kit.topic, NewPartitions.increaseTo(2))).all());
    }

    private static Config describe(Kit kit, ConfigResource resource) throws Exception {
        DescribeConfigsOptions all =
            new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return Kit.await(kit.admin().describeConfigs(List.of(resource), all).all()).get(resource);
    }

    private static KafkaFuture<Void> alter(Kit kit, ConfigResource resource, AlterConfigOp... ops) {
        Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(resource, List.of(ops));
        return kit.admin().incrementalAlterConfigs(changes).all();
    }

    private static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static void topicSettings(Kit kit) throws Exception {
        kit.create(1, "retention.bytes", "5000000");
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, kit.topic);
        ConfigEntry before = describe(kit, topic).get("retention.bytes");
        Kit.equal("5000000", before.value(), "value");
        Kit.equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, before.source(), "source");
        Kit.equal(ConfigEntry.ConfigType.LONG, before.type(), "type");
        Kit.check(before.documentation().length() > 20, "it is documented");
        Kit.equal(List.of("retention.bytes", "log.retention.bytes"),
            before.synonyms().stream().map(ConfigEntry.ConfigSynonym::name).toList(), "synonyms");
        Kit.await(alter(kit, topic,
            op("retention.bytes", null, AlterConfigOp.OpType.DELETE),
            op("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND),
            op("segment.bytes", "2000000", AlterConfigOp.OpType.SET)));
        Kit.until("the settings are in force",
            () -> describe(kit, topic).get("segment.bytes").value().equals("2000000"));
        Kit.equal("-1", describe(kit, topic).get("retention.bytes").value(), "reset");
        Kit.equal("delete,compact", describe(kit, topic).get("cleanup.policy").value(), "appended");
        Kit.refused(InvalidConfigurationException.class,
            alter(kit, topic, op("segment.bytes", "1", AlterConfigOp.OpType.SET)));
        Kit.refused(UnknownTopicOrPartitionException.class, kit.admin().describeConfigs(
            List.of(new ConfigResource(ConfigResource.Type.TOPIC, "never-made"))).all());
    }

    private static void groupSettings(Kit kit) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, kit.group);
        Kit.await(alter(kit, group,
            op("consumer.session.timeout.ms", "50000", AlterConfigOp.OpType.SET)));
        Kit.until("the setting is in force", () -> describe(kit, group)
            .get("consumer.session.timeout.ms").value().equals("50000"));
        Kit.check(Kit.await(kit.admin().listConfigResources(
            Set.of(ConfigResource.Type.GROUP),
            new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all())
            .contains(group), "the group is listed as having settings");
    }

    private static void deleteRecords(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(30);
        Map<TopicPartition, RecordsToDelete> to10 =
            Map.of(kit.part(0), RecordsToDelete.beforeOffset(10));
        Kit.equal(10L, Kit.await(kit.admin().deleteRecords(to10).lowWatermarks().get(kit.part(0)))
            .lowWatermark(), "low watermark");
        Kit.equal(10L, kit.readAll(20, 1).get(0).offset(), "first offset");
        Kit.refused(OffsetOutOfRangeException.class, kit.admin().deleteRecords(
            Map.of(kit.part(0), RecordsToDelete.beforeOffset(31))).all());
    }

    private static void listOffsets(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(12);
        Map<String, OffsetSpec> specs = Map.of(
            "0", OffsetSpec.earliest(), "12", OffsetSpec.latest(),
            "-1", OffsetSpec.latestTiered());
        for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
            long got = Kit.await(kit.admin().listOffsets(Map.of(kit.part(0), spec.getValue()))
                .partitionResult(kit.part(0))).offset();
            Kit.equal(spec.getKey(), "" + got, spec.getValue().getClass().getSimpleName());
        }
        Kit.equal(0L, Kit.await(kit.admin().listOffsets(
            Map.of(kit.part(0), OffsetSpec.earliestLocal())).all()).get(kit.part(0)).offset(),
            "earliest local");
        Kit.check(Kit.await(kit.admin().listOffsets(
            Map.of(kit.part(0), OffsetSpec.maxTimestamp())).all()).get(kit.part(0)).offset() >= 0,
            "the record with the highest timestamp");
    }

    private static void logDirs(Kit kit) throws Exception {
        kit.create(2);
        kit.fill(10);
        int node = Kit.await(kit.admin().describeCluster().nodes()).iterator().next().id();
        Map<String, LogDirDescription> dirs =
            Kit.await(kit.admin().describeLogDirs(List.of(node)).allDescriptions()).get(node);
        LogDirDescription dir = dirs.values().iterator().next();
        Kit.check(dir.error() == null, "no error");
        Kit.check(dir.totalBytes().getAsLong() > 0, "size of the volume");
        long size = 0;
        for (TopicPartition part : kit.parts(2)) {
            Kit.check(dir.replicaInfos().containsKey(part), part + " is listed");
            size += dir.replicaInfos().get(part).size();
        }
        Kit.check(size > 100, "ten records take " + size + " bytes");
    }

    private static void cluster(Kit kit) throws Exception {
        var described = kit.admin().describeCluster();
        Collection<Node> nodes = Kit.await(described.nodes());
        Kit.equal(Kit.NODES, nodes.size(), "nodes");
        Kit.equal(Set.of(kit.bootstrap.split(",")),
            nodes.stream().map(n -> n.host() + ":" + n.port()).collect(Collectors.toSet()), "addresses");
        Kit.check(nodes.contains(Kit.await(described.controller())), "the controller is one of them");
        Kit.equal(16, Uuid.fromString(Kit.await(described.clusterId())).toString().length() - 6, "id");
        Kit.check(!Kit.await(kit.admin().describeFeatures().featureMetadata())
            .finalizedFeatures().isEmpty(), "features");
    }

    private static void producers(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(7, "enable.idempotence", "true");
        List<ProducerState> states = Kit.await(
            kit.admin().describeProducers(List.of(kit.part(0))).partitionResult(kit.part(0)))
            .activeProducers();
        Kit.equal(1, states.size(), "producers");
        Kit.equal(6, states.get(0).lastSequence(), "last sequence");
        Kit.equal(0, states.get(0).producerEpoch(), "producer epoch");
        Kit.check(states.get(0).currentTransactionStartOffset().isEmpty(), "no transaction");
    }

    private static void groups(Kit kit) throws Exception {
        kit.create(2);
        Consumer<byte[], byte[]> member =
            kit.consumer("group.protocol", "consumer", "client.id", "its-name");
        member.subscribe(List.of(kit.topic));
        GroupScenarios.settle(List.of(member), kit.parts(2));
        ConsumerGroupDescription described = Kit.await(
            kit.admin().describeConsumerGroups(List.of(kit.group)).all()).get(kit.group);
        Kit.equal(GroupState.STABLE, described.groupState(), "state");
        Kit.equal(GroupType.CONSUMER, described.type(), "type");
        Kit.equal("uniform", described.partitionAssignor(), "assignor");
        Kit.equal("its-name", described.members().iterator().next().clientId(), "client id");
        Kit.equal(kit.parts(2),
            described.members().iterator().next().assignment().topicPartitions(), "partitions");
        var listed = Kit.await(kit.admin().listGroups(new ListGroupsOptions()
            .withTypes(Set.of(GroupType.CONSUMER)).inGroupStates(Set.of(GroupState.STABLE))).all());
        Kit.check(listed.stream().anyMatch(g -> g.groupId().equals(kit.group)), "it is listed");
        Kit.check(listed.stream().allMatch(g -> g.type().orElseThrow() == GroupType.CONSUMER),
            "only the type that was asked for");
        Kit.refused(GroupIdNotFoundException.class,
            kit.admin().describeConsumerGroups(List.of("never-was")).all());
    }

    private static void groupOffsets(Kit kit) throws Exception {
        kit.create(2);
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(
            kit.part(0), new OffsetAndMetadata(5, "m"), kit.part(1), new OffsetAndMetadata(6));
        Kit.await(kit.admin().alterConsumerGroupOffsets(kit.group, offsets).all());
        var both = kit.admin().listConsumerGroupOffsets(Map.of(
            kit.group, new ListConsumerGroupOffsetsSpec(),
            "never-was", new ListConsumerGroupOffsetsSpec()));
        Map<TopicPartition, OffsetAndMetadata> got =
            Kit.await(both.partitionsToOffsetAndMetadata(kit.group));
        Kit.equal(5L, got.get(kit.part(0)).offset(), "offset");
        Kit.equal("m", got.get(kit.part(0)).metadata(), "metadata");
        Kit.equal(Map.of(), Kit.await(both.partitionsToOffsetAndMetadata("never-was")), "none");
        Kit.await(kit.admin().deleteConsumerGroupOffsets(kit.group, Set.of(kit.part(0))).all());
        Kit.equal(Set.of(kit.part(1)), Kit.await(kit.admin().listConsumerGroupOffsets(kit.group)
            .partitionsToOffsetAndMetadata()).keySet(), "what is left");
        Consumer<byte[], byte[]> member = kit.consumer();
        member.subscribe(List.of(kit.topic));
        GroupScenarios.settle(List.of(member), kit.parts(2));
        Kit.refused(GroupSubscribedToTopicException.class, kit.admin().deleteConsumerGroupOffsets(
            kit.group, Set.of(kit.part(1))).partitionResult(kit.part(1)));
    }

    private static void deleteGroups(Kit kit) throws Exception {
        kit.create(1);
        Consumer<byte[], byte[]> member = kit.consumer();
        member.subscribe(List.of(kit.topic));
        GroupScenarios.settle(List.of(member), kit.parts(1));
        Kit.refused(GroupNotEmptyException.class,
            kit.admin().deleteConsumerGroups(List.of(kit.group)).all());
        member.close();
        Kit.await(kit.admin().deleteConsumerGroups(List.of(kit.group)).all());
        Kit.refused(GroupIdNotFoundException.class,
            kit.admin().deleteConsumerGroups(List.of(kit.group)).all());
    }
}
