//! Why a message is refused.

use http::StatusCode;

/// Why a request's head or body is refused. The connection ends after the answer, because the start
/// of the next message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A line that ends with LF alone.
    #[error("a line ends without a carriage return")]
    BareLineFeed,
    /// A CR without an LF after it.
    #[error("a carriage return stands alone")]
    BareCarriageReturn,
    /// More empty lines before the request than some old clients send.
    #[error("there are too many empty lines before the request")]
    EmptyLines,
    /// The first line is not `method target version`.
    #[error("the first line is not a request line")]
    RequestLine,
    /// The method is not a token.
    #[error("the method is not a word")]
    Method,
    /// The method is longer than any known one.
    #[error("the method is too long to be one")]
    MethodTooLong,
    /// The target is in none of the four forms, or in the wrong one for the method.
    #[error("the target is not an address")]
    Target,
    /// The target exceeds the limit.
    #[error("the target is too long")]
    TargetTooLong,
    /// A version of HTTP other than 1.0 and 1.1.
    #[error("the version is not 1.0 or 1.1")]
    Version,
    /// The field `Host` is missing although the version requires it.
    #[error("there is no Host")]
    HostMissing,
    /// The field `Host` occurs more than once.
    #[error("there are several Hosts")]
    HostTwice,
    /// An invalid host.
    #[error("the host is not well-formed")]
    Host,
    /// The head exceeds the limit.
    #[error("the head is too long")]
    HeadTooLong,
    /// There are more fields than the limit.
    #[error("there are too many fields")]
    TooManyFields,
    /// A line that begins with white space, like a continuation of the one before it.
    #[error("a field is folded over two lines")]
    Folded,
    /// White space between a field's name and its colon.
    #[error("there is a space before a colon")]
    SpaceBeforeColon,
    /// A name that is not a token, or empty.
    #[error("the name of a field is not a word")]
    FieldName,
    /// A control byte in a field's value.
    #[error("there is a control character in a field")]
    FieldValue,
    /// Both `Content-Length` and `Transfer-Encoding`.
    #[error("there are two ways to tell the length of the body")]
    LengthAndCoding,
    /// More than one length.
    #[error("there are several Content-Lengths")]
    LengthTwice,
    /// A length that is not only digits.
    #[error("the Content-Length is not a number")]
    Length,
    /// A length that does not fit into a number, or a body above the limit.
    #[error("the body is too long")]
    BodyTooLong,
    /// `Transfer-Encoding` in HTTP/1.0.
    #[error("there is a Transfer-Encoding in HTTP/1.0")]
    CodingInHttp10,
    /// `Transfer-Encoding` without `chunked` at its end, or with two of it.
    #[error("the Transfer-Encoding does not end with one chunked")]
    Coding,
    /// An unknown coding before `chunked`.
    #[error("the Transfer-Encoding is unknown")]
    CodingUnknown,
    /// An expectation other than `100-continue`.
    #[error("the expectation cannot be met")]
    Expectation,
    /// The line with a chunk's size is malformed.
    #[error("the size of a chunk is not well-formed")]
    ChunkSize,
    /// An extension of a chunk is malformed, or too long.
    #[error("the extension of a chunk is not well-formed")]
    ChunkExtension,
    /// No line end after the bytes of a chunk.
    #[error("a chunk is longer than its size says")]
    ChunkEnd,
    /// A field after the last chunk is malformed, or there are too many.
    #[error("a trailer is not well-formed")]
    Trailer,
    /// The client ended its side in the middle of a request.
    #[error("the request is cut short")]
    CutShort,
    /// The request took too long to arrive.
    #[error("the request took too long")]
    TooSlow,
}

impl Refusal {
    /// The status for the client.
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::TargetTooLong => StatusCode::URI_TOO_LONG,
            Refusal::HeadTooLong | Refusal::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Refusal::MethodTooLong | Refusal::CodingUnknown => StatusCode::NOT_IMPLEMENTED,
            Refusal::Expectation => StatusCode::EXPECTATION_FAILED,
            Refusal::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
