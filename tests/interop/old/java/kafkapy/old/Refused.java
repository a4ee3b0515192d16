package kafkapy.old;

/** An error code in an answer to one of the Scala clients, which have no exceptions for them. */
public final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1L;
    final int code;

    public Refused(int code, String about) {
        super(about);
        this.code = code;
    }
}
