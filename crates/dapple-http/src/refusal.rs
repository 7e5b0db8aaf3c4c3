//! Why a message is not taken.

use http::StatusCode;

/// Why a request's head or body is refused. The connection ends behind the answer: where the next message would begin, nobody can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A line that ends with LF alone.
    #[error("a line ends without a carriage return")]
    BareLineFeed,
    /// A CR that no LF follows.
    #[error("a carriage return stands alone")]
    BareCarriageReturn,
    /// More empty lines in front of the request than some old clients send.
    #[error("there are too many empty lines before the request")]
    EmptyLines,
    /// The first line is not `method target version`.
    #[error("the first line is no request line")]
    RequestLine,
    /// The method is no token.
    #[error("the method is not a word")]
    Method,
    /// The method is longer than any that is known.
    #[error("the method is too long to be one")]
    MethodTooLong,
    /// The target is in none of the four forms, or in the wrong one for the method.
    #[error("the target is no address")]
    Target,
    /// The target is longer than is taken.
    #[error("the target is too long")]
    TargetTooLong,
    /// A version of HTTP that this format is not.
    #[error("the version is not 1.0 or 1.1")]
    Version,
    /// The field `Host` is missing where the version requires it.
    #[error("there is no Host")]
    HostMissing,
    /// The field `Host` is there more than once.
    #[error("there are several Hosts")]
    HostTwice,
    /// A host that is none.
    #[error("the host is not well-formed")]
    Host,
    /// The head is longer than is taken.
    #[error("the head is too long")]
    HeadTooLong,
    /// There are more fields than are taken.
    #[error("there are too many fields")]
    TooManyFields,
    /// A line that begins with white space, as if it went on with the one before it.
    #[error("a field is folded over two lines")]
    Folded,
    /// White space between a field's name and its colon.
    #[error("there is a space before a colon")]
    SpaceBeforeColon,
    /// A name that is no token, or none.
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
    /// A length that is not digits alone.
    #[error("the Content-Length is no number")]
    Length,
    /// A length that no number here can hold, or more of a body than is taken.
    #[error("the body is too long")]
    BodyTooLong,
    /// `Transfer-Encoding` in HTTP/1.0.
    #[error("there is a Transfer-Encoding in HTTP/1.0")]
    CodingInHttp10,
    /// `Transfer-Encoding` without `chunked` at its end, or with two of it.
    #[error("the Transfer-Encoding does not end with one chunked")]
    Coding,
    /// A coding that is not known, in front of `chunked`.
    #[error("the Transfer-Encoding is unknown")]
    CodingUnknown,
    /// An expectation other than `100-continue`.
    #[error("the expectation cannot be met")]
    Expectation,
    /// The line with a chunk's size is not well-formed.
    #[error("the size of a chunk is not well-formed")]
    ChunkSize,
    /// An extension of a chunk is not well-formed, or too long.
    #[error("the extension of a chunk is not well-formed")]
    ChunkExtension,
    /// No line's end behind the bytes of a chunk.
    #[error("a chunk is longer than its size says")]
    ChunkEnd,
    /// A field behind the last chunk is not well-formed, or there are too many.
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
    /// The status that says so to the client.
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
