/** What a scenario is given: the broker's address, and names that no other scenario uses. */
record Scene(String bootstrap, String prefix) {
    String name(String of) {
        return prefix + "." + of;
    }
}
