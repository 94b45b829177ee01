/** Values of every storage class that something could take for others. */

const utf8 = (text: string): string => `CAST(x'${Buffer.from(text, 'utf8').toString('hex')}' AS TEXT)`;
const allBytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('hex');

/** As SQL, so that no binding's idea of a number is in the way. */
export const VALUES: string[] = [
  'NULL',
  // Integers, about the limits of a JavaScript number and of 64 bits.
  ...['0', '1', '-1', '9007199254740990', '9007199254740991', '9007199254740992', '9007199254740993'],
  ...['-9007199254740991', '-9007199254740992', '-9007199254740993', '9223372036854775807', '-9223372036854775808'],
  ...['4611686018427387905', '-9223372036854775807', '1000000000000000000'],
  // Reals: whole ones, signed zero, the extremes, and those that need all 17 digits.
  ...['0.0', '-0.0', '1.0', '1.5', '-2.5', '0.1', '0.30000000000000004', '3.141592653589793', '2.718281828459045'],
  ...['9007199254740992.0', '9007199254740994.0', '1e15', '1e16', '123456789012345680.0', '9223372036854775807.0'],
  ...['1e19', '-1e19', '1e300', '-1e300', '1.7976931348623157e308', '-1.7976931348623157e308', '5e-324', '-5e-324'],
  ...['2.2250738585072014e-308', '2.225073858507201e-308', '1e23', '4.35', '1.0000000000000002', '9e999', '-9e999'],
  // Text.
  ...[
    "''",
    "' '",
    "'plain'",
    "'O''Brien'",
    "'back\\slash \\u0041 \\n'",
    '\'"quoted"\'',
    "'line' || char(10) || char(13) || char(9)",
  ],
  ...["'a' || char(0) || 'b'", 'char(0)', "char(0) || 'x'", "'$' || char(0)", 'char(1, 8, 12, 27, 31, 127, 128, 159)'],
  ...[
    utf8('🙂 emoji 👩‍👩‍👧'),
    utf8('naïve é combining'),
    utf8('\u2028\u2029\ufeff\ufffd'),
    utf8('￿𐀀􏿿'),
    utf8('日本語'),
  ],
  // Text that looks like something else.
  ...[
    "'1'",
    "'1.0'",
    "'-0'",
    "'007'",
    "'1e5'",
    "' 12 '",
    "'0x1F'",
    "'9007199254740993'",
    "'9223372036854775808'",
    "'+5'",
  ],
  ...["'9e999'", "'-9e999'", "'Infinity'", "'NaN'", "'null'", "'true'", "'1_000'", "'.5'", "'5.'"],
  // Text that begins like an encoded value.
  ...[
    "'$'",
    "'$$'",
    "'$x'",
    "'$blob'",
    "'$blob:'",
    "'$blob:00ff'",
    "'$blob:xyz'",
    "'$BLOB:00'",
    "'$text:'",
    "'$text:$text:x'",
  ],
  ...[
    "'$int:5'",
    "'$int:'",
    "'$real:9e999'",
    "'$real:1.5'",
    "'$json:{}'",
    "'%'",
    "'#'",
    "'$blob:00' || char(0) || 'x'",
  ],
  ...["'$text:a' || char(0) || 'b'", "'$int:1' || char(0)", utf8('$blob:é🙂'), utf8('$text:é🙂')],
  ...["'$bytes:'", "'$bytes:ff41'", "'$bytes:6162'", "'$bytes:xyz'", "'$text:$bytes:ff'"],
  // Text that is not UTF-8: stray, cut off, overlong, half a surrogate pair, beyond Unicode; among what JSON escapes.
  ...['ff41', '80', '61c3', 'c3a9c3', 'c080', 'e08080', 'eda080', 'f4908080', 'ff00fe', '22ff5c0a', 'efbfbeff'].map(
    (hex) => `CAST(x'${hex}' AS TEXT)`,
  ),
  ...['24626c6f623aff', '24746578743aff', '2462797465733aff', '24ff'].map((hex) => `CAST(x'${hex}' AS TEXT)`),
  // Blobs.
  ...[
    "x''",
    "x'00'",
    "x'ff'",
    `x'${allBytes}'`,
    "x'24626c6f623a'",
    'CAST(1 AS BLOB)',
    "CAST('1.5' AS BLOB)",
    "x'c3a9'",
    "x'eda080'",
  ],
];
